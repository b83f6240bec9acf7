/* Connections that a full accept queue turns away, before or after their handshake. */

INLINE u64 netns_of_route(struct sk_buff *skb) {
    struct dst_entry *route = (struct dst_entry *)(READ(skb, _skb_refdst) & ~1UL);
    struct net_device *device;

    if (!route)
        return 0;
    device = READ(route, dev);
    return device ? cookie_of(READ(device, nd_net.net)) : 0;
}

INLINE void overflowed(int hook, u64 netns, struct lc_port *port, struct lc_segment *segment) {
    u64 now = bpf_ktime_get_boot_ns();

    if (is_probe(&segment->connection))
        return;
    if (segment->flags & TCP_SYN
            ? attempt_counted(&segment->connection, segment->sequence, KIND_OVERFLOW, now)
            : connection_counted(&segment->connection, KIND_OVERFLOW, now))
        return;
    count_drop(hook, netns, &segment->connection, KIND_OVERFLOW, facts_of_arrival(netns, port));
}

#ifdef CONSUMED_SYN_FROM
/*
 * A listener whose accept queue is full consumes the SYN as if it had taken it: only where the packet is
 * consumed (tcp_rcv_state_process) and the state of the queue tell.
 */
int on_consume_skb(struct bpf_raw_tracepoint_args *ctx) {
    struct sk_buff *skb = (struct sk_buff *)ctx->args[0];
    u64 location = ctx->args[1];
    struct lc_segment segment = {};
    struct lc_port_key key = {};
    struct lc_port *port;

    if (location < CONSUMED_SYN_FROM || location >= CONSUMED_SYN_TO)
        return 0;
    if (!read_segment(skb, &segment) || (segment.flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
        return 0;
    key.netns = netns_of_route(skb);
    key.port = segment.connection.local_port;
    if (key.netns == HOST_NETNS)
        return 0;
    port = ports.lookup(&key);
    if (port && port->listener && queue_full((struct sock *)port->listener))
        overflowed(HOOK_CONSUME_SKB, key.netns, port, &segment);
    return 0;
}
#endif
