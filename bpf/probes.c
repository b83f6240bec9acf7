/*
 * Connections of the kubelet (probes, HTTP hooks) are not drops. They are told apart by the process that owns
 * the socket on the host: the source address is that of masqueraded traffic as well.
 *
 * When the host's socket enters SYN_SENT its port is not chosen yet, but when the pod answers it is: so the
 * socket itself is remembered under the pod's address and port, and its port is read when it matters.
 */

#define PROBE_SLOTS 8

struct lc_probe_key {
    struct lc_address address;
    u16 port;
    u16 slot;
    u32 pad;
};

BPF_HASH(probe_sockets, struct lc_probe_key, u64, 16384);
BPF_HASH(probe_slots, u64, struct lc_probe_key, 16384);
BPF_HASH(probing_processes, struct lc_process_name, u8, 64);

/* How many probes are under way, by a hash of where to: with none there is no need to look for one. */
#define PROBE_COUNTERS 4096
BPF_ARRAY(probes_under_way, u32, PROBE_COUNTERS);

INLINE u32 *probes_to(struct lc_address *address, u16 port) {
    u64 mixed = address->high ^ address->low ^ port;
    int index = (mixed ^ mixed >> 32 ^ mixed >> 48) & (PROBE_COUNTERS - 1);

    return probes_under_way.lookup(&index);
}

INLINE void remember_probe(struct sock *sk) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct task_struct *leader = READ(task, group_leader);
    struct lc_process_name name = {};
    struct lc_connection connection = {};
    struct lc_probe_key key = {};
    u64 pointer = (u64)sk;
    u32 *under_way;

    bpf_probe_read_kernel_str(name.comm, sizeof(name.comm), ADDRESS_OF(leader, comm));
    if (!probing_processes.lookup(&name))
        return;
    read_socket(sk, &connection);
    key.address = connection.remote;
    key.port = connection.remote_port;
    under_way = probes_to(&key.address, key.port);
#pragma unroll
    for (int slot = 0; slot < PROBE_SLOTS; slot++) {
        key.slot = slot;
        if (!probe_sockets.insert(&key, &pointer)) {
            probe_slots.update(&pointer, &key);
            if (under_way)
                __sync_fetch_and_add(under_way, 1);
            return;
        }
    }
    count_lost(HOOK_SET_STATE);
}

INLINE void forget_probe(struct sock *sk) {
    u64 pointer = (u64)sk;
    struct lc_probe_key *key = probe_slots.lookup(&pointer);
    struct lc_probe_key copy;
    u32 *under_way;

    if (!key)
        return;
    copy = *key;
    under_way = probes_to(&copy.address, copy.port);
    if (under_way)
        __sync_fetch_and_add(under_way, -1);
    probe_sockets.delete(&copy);
    probe_slots.delete(&pointer);
}

INLINE bool is_probe(struct lc_connection *connection) {
    struct lc_probe_key key = {};
    u32 *under_way = probes_to(&connection->local, connection->local_port);

    if (under_way && !*under_way)
        return false;
    key.address = connection->local;
    key.port = connection->local_port;
#pragma unroll
    for (int slot = 0; slot < PROBE_SLOTS; slot++) {
        u64 *pointer;

        key.slot = slot;
        pointer = probe_sockets.lookup(&key);
        if (pointer) {
            struct lc_connection owner = {};

            read_socket((struct sock *)*pointer, &owner);
            if (owner.local_port == connection->remote_port &&
                same_address(&owner.local, &connection->remote))
                return true;
        }
    }
    return false;
}
