/*
 * Connection attempts at the address of a pod whose network is gone. Nothing answers them; what is left of
 * them is the discarded packet (one or many copies, in any namespace) and the client's retransmission.
 */

BPF_HASH(gone_addresses, struct lc_address, u64, 8192);
/* Whether gone_addresses holds anything, so that the common case costs one array lookup. */
BPF_ARRAY(gone_count, u32, 1);

INLINE bool nothing_gone(void) {
    int zero = 0;
    u32 *count = gone_count.lookup(&zero);

    return !count || !*count;
}

INLINE void attempt_lost(int hook, struct lc_connection *connection, u32 sequence) {
    u64 *netns = gone_addresses.lookup(&connection->local), now = bpf_ktime_get_boot_ns();
    struct lc_last_drop drop = {.at_ns = now, .sequence = sequence, .kind = KIND_UNREACHABLE}, *last;
    struct lc_port_key key = {};
    struct lc_port *port;

    if (!netns)
        return;
    key.netns = *netns;
    key.port = connection->local_port;
    port = ports.lookup(&key);
    if (!port || !(port->facts & FACT_LISTENED))
        return;
    if (attempt_was_lost(connection, sequence))
        return;
    /* Refused before the network went, and tried again: still one connection. */
    last = dropped_attempts.lookup(connection);
    if (last && last->sequence == sequence)
        return;
    if (is_probe(connection))
        return;
    if (lost_attempts.update(connection, &drop)) {
        count_lost(hook);
        return;
    }
    count_drop(
        hook, key.netns, connection, KIND_UNREACHABLE, pod_facts(key.netns) | FACT_LISTENED | FACT_GONE);
}

int on_retransmit(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sk = (struct sock *)ctx->args[0];
    struct lc_connection client = {}, connection = {};

    if (nothing_gone() || READ(sk, __sk_common.skc_state) != TCP_SYN_SENT)
        return 0;
    read_socket(sk, &client);
    connection.local = client.remote;
    connection.local_port = client.remote_port;
    connection.remote = client.local;
    connection.remote_port = client.local_port;
    attempt_lost(HOOK_RETRANSMIT, &connection, READ((struct tcp_sock *)sk, snd_una));
    return 0;
}
