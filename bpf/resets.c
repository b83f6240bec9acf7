/* tcp_send_reset: the pod answers a segment with a reset, or resets a connection of its own accord. */

INLINE u64 netns_of_reset(struct sock *sk, struct sk_buff *skb) {
    struct net_device *device;

    if (sk)
        return netns_of(sk); /* a TIME_WAIT or request socket has this field too */
    device = READ(skb, dev);
    return device ? cookie_of(READ(device, nd_net.net)) : 0;
}

INLINE bool queue_full(struct sock *listener) {
    return READ(listener, sk_ack_backlog) > READ(listener, sk_max_ack_backlog);
}

INLINE void refused(u64 netns, struct lc_port *port, struct lc_segment *segment) {
    struct lc_connection *connection = &segment->connection;

    if (is_probe(connection))
        return;
    if (attempt_counted(connection, segment->sequence, KIND_REFUSED, bpf_ktime_get_boot_ns()))
        return;
    if (port && port->facts & FACT_LISTENED)
        count_drop(HOOK_SEND_RESET, netns, connection, KIND_REFUSED, facts_of_arrival(netns, port));
    else
        count_unserved(HOOK_SEND_RESET, netns, connection, pod_facts(netns));
}

INLINE void answered_with_reset(struct sock *sk, struct sk_buff *skb) {
    struct lc_segment segment = {};
    struct lc_port_key key = {};
    struct lc_port *port;
    u8 kind = KIND_STALE, state;

    if (!read_segment(skb, &segment) || segment.flags & TCP_RST)
        return;
    if ((segment.flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK))
        return; /* the pod is the client */
    if (stays_inside(&segment.connection) || arrives_by_loopback(skb))
        return;
    key.netns = netns_of_reset(sk, skb);
    if (!key.netns || key.netns == HOST_NETNS)
        return;
    key.port = segment.connection.local_port;
    port = ports.lookup(&key);
    if (segment.flags & TCP_SYN) {
        refused(key.netns, port, &segment);
        return;
    }
    if (!port)
        return;
    state = sk ? READ(sk, __sk_common.skc_state) : 0;
    if (state == TCP_LISTEN && queue_full(sk))
        kind = KIND_OVERFLOW;
    else if (!segment.payload)
        return;
    if (is_probe(&segment.connection) ||
        connection_counted(&segment.connection, kind, bpf_ktime_get_boot_ns()))
        return;
    count_drop(HOOK_SEND_RESET, key.netns, &segment.connection, kind, facts_of_arrival(key.netns, port));
}

/*
 * Which failure a reset of the pod's own accord is: KIND_LATE (0) for none. A client that has closed its own
 * side (SOCK_DONE) has given up and lost nothing.
 */
INLINE u8 kind_of_reset(struct sock *sk) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    u8 shutdown = READ(sk, sk_shutdown);

    if (READ(sk, __sk_common.skc_flags) & (1UL << SOCK_DONE))
        return KIND_LATE;
    if (!READ(sk, sk_socket))
        return shutdown == 0 ? KIND_UNACCEPTED : KIND_LATE;
    if (shutdown != 3)
        return KIND_LATE;
    if (READ(tp, rcv_nxt) != READ(tp, copied_seq))
        return KIND_UNREAD;
    return in_flight(sk) ? KIND_ABORTED : KIND_LATE;
}

INLINE void reset_by_pod(struct sock *sk) {
    struct lc_connection connection = {};
    struct lc_port_key key = {};
    struct lc_port *port;
    u32 facts;
    u8 kind;

    key.netns = netns_of(sk);
    key.port = bpf_ntohs(READ((struct inet_sock *)sk, inet_sport));
    if (key.netns == HOST_NETNS)
        return;
    port = ports.lookup(&key);
    if (!port)
        return;
    kind = kind_of_reset(sk);
    if (kind == KIND_LATE)
        return;
    read_socket(sk, &connection);
    if (stays_inside(&connection) || is_probe(&connection))
        return;
    if (connection_counted(&connection, kind, bpf_ktime_get_boot_ns()))
        return;
    facts = facts_of_cut(key.netns, port);
    /* The listener's close is what flushed the queue: the connection waited while it was open. */
    if (kind == KIND_UNACCEPTED)
        facts &= ~(u32)FACT_CLOSED;
    count_drop(HOOK_SEND_RESET, key.netns, &connection, kind, facts);
}

int on_send_reset(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sk = (struct sock *)ctx->args[0];
    struct sk_buff *skb = (struct sk_buff *)ctx->args[1];

    if (skb)
        answered_with_reset(sk, skb);
    else if (sk && READ(sk, sk_protocol) == 6)
        reset_by_pod(sk);
    return 0;
}

#ifdef RESETS_BY_KPROBE
/*
 * Where tcp_send_reset has no reason argument it is silent for a segment that meets no socket or one in
 * TIME_WAIT (before Linux 6.10). tcp_v4_send_reset and tcp_v6_send_reset see those; the rest comes from the
 * tracepoint.
 */
int on_send_reset_entry(struct pt_regs *ctx) {
    struct sock *sk = (struct sock *)PT_REGS_PARM1(ctx);
    struct sk_buff *skb = (struct sk_buff *)PT_REGS_PARM2(ctx);
    u8 state = sk ? READ(sk, __sk_common.skc_state) : 0;

    if (skb && (!sk || state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV))
        answered_with_reset(sk, skb);
    return 0;
}
#endif
