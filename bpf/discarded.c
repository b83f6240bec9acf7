/* kfree_skb: packets that the network stack throws away, each with its reason. */

int on_kfree_skb(struct bpf_raw_tracepoint_args *ctx) {
    struct sk_buff *skb = (struct sk_buff *)ctx->args[0];
    struct lc_segment segment = {};

#ifdef KFREE_SKB_HAS_SOCKET
    struct sock *sk = (struct sock *)ctx->args[3];

    if (ctx->args[2] == SKB_DROP_REASON_TCP_LISTEN_OVERFLOW && sk) {
        struct lc_port_key key = {.netns = netns_of(sk)};
        struct lc_port *port;

        if (!read_segment(skb, &segment))
            return 0;
        key.port = segment.connection.local_port;
        port = ports.lookup(&key);
        if (port)
            overflowed(HOOK_KFREE_SKB, key.netns, port, &segment);
        return 0;
    }
#endif
    if (nothing_gone())
        return 0;
    if (!read_segment(skb, &segment) || (segment.flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
        return 0;
    attempt_lost(HOOK_KFREE_SKB, &segment.connection, segment.sequence);
    return 0;
}
