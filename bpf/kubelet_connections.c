/* Connections of the kubelet to pods that declare an HTTP hook: when they begin, and when either side closes.
 */

struct lc_kubelet_connection {
    u64 netns;
    u16 port;
    u16 source_port;
    u32 pad;
};

/* By the pod's socket. */
BPF_HASH(kubelet_connections, u64, struct lc_kubelet_connection, 4096);
/* How many there are, so that the end of any other connection costs one array lookup. */
BPF_ARRAY(kubelet_connection_count, u32, 1);

INLINE void send_kubelet_record(u32 type, struct lc_kubelet_connection *connection) {
    struct lc_record record = {
        .at_ns = bpf_ktime_get_boot_ns(),
        .netns = connection->netns,
        .type = type,
        .port = connection->port,
        .source_port = connection->source_port,
    };

    send_record(HOOK_SET_STATE, &record);
}

INLINE void kubelet_connected(struct sock *sk, u64 netns, struct lc_connection *connection) {
    struct lc_kubelet_connection begun = {
        .netns = netns, .port = connection->local_port, .source_port = connection->remote_port};
    u64 pointer = (u64)sk;
    int zero = 0;
    u32 *count = kubelet_connection_count.lookup(&zero);

    if (!count || kubelet_connections.insert(&pointer, &begun)) {
        count_lost(HOOK_SET_STATE);
        return;
    }
    __sync_fetch_and_add(count, 1);
    send_kubelet_record(RECORD_KUBELET_CONNECTED, &begun);
}

/* The connection leaves ESTABLISHED. */
INLINE void kubelet_disconnected(struct sock *sk) {
    struct lc_kubelet_connection *known, ended;
    u64 pointer = (u64)sk;
    int zero = 0;
    u32 *count = kubelet_connection_count.lookup(&zero);

    if (!count || !*count)
        return;
    known = kubelet_connections.lookup(&pointer);
    if (!known)
        return;
    ended = *known;
    kubelet_connections.delete(&pointer);
    __sync_fetch_and_add(count, -1);
    send_kubelet_record(RECORD_KUBELET_DISCONNECTED, &ended);
}
