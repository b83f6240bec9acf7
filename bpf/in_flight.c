/* Whether a connection holds a request that has not been answered. */

struct lc_last_request {
    u32 written; /* write_seq: where the pod's own bytes stood when data last arrived */
    u16 remote_port;
    u16 pad;
};

BPF_TABLE("lru_hash", u64, struct lc_last_request, last_requests, 65536);

INLINE bool in_flight(struct sock *sk) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    u64 pointer = (u64)sk;
    struct lc_last_request *last;

    if (READ(tp, bytes_received) == 0)
        return false;
    if (READ(tp, bytes_sent) == 0)
        return true;
    last = last_requests.lookup(&pointer);
    if (last && last->remote_port == bpf_ntohs(READ(sk, __sk_common.skc_dport)))
        return last->written == READ(tp, write_seq);
    /* Data came before this was watched: times in jiffies, where a tie counts as answered. */
    return (s32)(READ((struct inet_connection_sock *)sk, icsk_ack.lrcvtime) - READ(tp, lsndtime)) > 0;
}

/* Attached only while a pod of this node is dying or restarting: it runs for every segment received. */
int on_tcp_probe(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sk = (struct sock *)ctx->args[0];
    struct sk_buff *skb = (struct sk_buff *)ctx->args[1];
    struct lc_port_key key = {.netns = netns_of(sk)};
    struct lc_last_request last = {};
    struct lc_segment segment = {};
    u64 pointer = (u64)sk;

    key.port = bpf_ntohs(READ((struct inet_sock *)sk, inet_sport));
    if (!ports.lookup(&key))
        return 0;
    if (!read_segment(skb, &segment) || !segment.payload)
        return 0;
    last.written = READ((struct tcp_sock *)sk, write_seq);
    last.remote_port = segment.connection.remote_port;
    last_requests.update(&pointer, &last);
    return 0;
}
