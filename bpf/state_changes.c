/* inet_sock_set_state: listeners, late connections, the kubelet's, and requests that a close left unanswered.
 */

INLINE void connection_accepted(struct sock *sk) {
    struct lc_port_key key = {.port = READ(sk, __sk_common.skc_num)};
    struct lc_connection connection = {};
    struct lc_port *port;
    struct lc_pod *pod;

    if (!may_be_served(key.port))
        return;
    key.netns = netns_of(sk);
    port = ports.lookup(&key);
    if (!port)
        return;
    read_socket(sk, &connection);
    connection_begins(&connection);
    pod = pods.lookup(&key.netns);
    if (!pod || !(pod->facts & FACT_DELETED || pod->evidence & EVIDENCE_KUBELET_CONNECTION))
        return;
    if (stays_inside(&connection))
        return;
    if (is_probe(&connection)) {
        if (pod->evidence & EVIDENCE_KUBELET_CONNECTION)
            kubelet_connected(sk, key.netns, &connection);
        return;
    }
    if (pod->facts & FACT_DELETED)
        count_late(key.netns, key.port, facts_of_arrival(key.netns, port));
}

INLINE void connection_closed(struct sock *sk) {
    struct lc_port_key key = {.port = bpf_ntohs(READ((struct inet_sock *)sk, inet_sport))};
    struct lc_connection connection = {};
    struct lc_port *port;
    u32 facts;

    if (!may_be_served(key.port))
        return;
    key.netns = netns_of(sk);
    port = ports.lookup(&key);
    if (!port)
        return;
    facts = facts_of_arrival(key.netns, port);
    if (!(facts & (FACT_DELETED | FACT_SIGNALLED | FACT_EXITED)) && !exiting())
        return;
    /* 3 = SHUTDOWN_MASK: a close; a half close goes on reading and writing. */
    if (READ(sk, sk_shutdown) != 3 || !in_flight(sk))
        return;
    read_socket(sk, &connection);
    if (stays_inside(&connection) || is_probe(&connection))
        return;
    if (connection_counted(&connection, KIND_UNANSWERED, bpf_ktime_get_boot_ns()))
        return;
    count_drop(HOOK_SET_STATE, key.netns, &connection, KIND_UNANSWERED, facts_of_cut(key.netns, port));
}

int on_set_state(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sk = (struct sock *)ctx->args[0];
    int old_state = ctx->args[1], new_state = ctx->args[2];

    if (READ(sk, sk_protocol) != 6)
        return 0;
    if (old_state == TCP_ESTABLISHED)
        kubelet_disconnected(sk);
    if (new_state == TCP_LISTEN && old_state == TCP_CLOSE)
        listener_opened(sk);
    else if (old_state == TCP_LISTEN && new_state == TCP_CLOSE)
        listener_closed(sk);
    else if (old_state == TCP_LISTEN && new_state == TCP_SYN_RECV)
        learn_listener(sk);
    else if (old_state == TCP_SYN_RECV && new_state == TCP_ESTABLISHED)
        connection_accepted(sk);
    else if (old_state == TCP_ESTABLISHED && new_state == TCP_FIN_WAIT1)
        connection_closed(sk);
    else if (old_state == TCP_CLOSE && new_state == TCP_SYN_SENT && netns_of(sk) == HOST_NETNS)
        remember_probe(sk);
    else if (new_state == TCP_CLOSE)
        forget_probe(sk);
    return 0;
}
