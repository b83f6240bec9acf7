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

/*
 * Runs for every segment that an established connection receives: a segment for a port that no pod of the
 * node serves (a client's, for one) costs one read and one array lookup. It has to run before a pod dies,
 * because the requests that a death leaves unanswered came before it.
 */
int on_tcp_probe(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sk = (struct sock *)ctx->args[0];
    struct sk_buff *skb = (struct sk_buff *)ctx->args[1];
    struct lc_last_request request = {}, *last;
    struct lc_segment segment = {};
    u64 pointer = (u64)sk;

    if (!may_be_served(bpf_ntohs(READ((struct inet_sock *)sk, inet_sport))))
        return 0;
    if (!read_segment(skb, &segment) || !segment.payload)
        return 0;
    request.written = READ((struct tcp_sock *)sk, write_seq);
    request.remote_port = segment.connection.remote_port;
    last = last_requests.lookup(&pointer);
    if (last)
        *last = request;
    else
        last_requests.update(&pointer, &request);
    return 0;
}
