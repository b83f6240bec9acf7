/* Counting connections, each once. The totals never evict; sources may, and what they lose shows as `other`.
 */

#define NSEC_PER_SEC 1000000000ULL
/* Longer than a round trip and shorter than the reuse of a port. */
#define SAME_CONNECTION_NS (3 * NSEC_PER_SEC)
/* The last retransmission of a SYN or of data that nobody answers comes before this (tcp_syn_retries 6). */
#define RETRANSMISSION_NS (130 * NSEC_PER_SEC)
#define SAMPLES_PER_KEY 16

BPF_HASH(drops, struct lc_drop_key, struct lc_drop_count, 65536);
/* Refusals on ports that nobody has listened on: drops of a starting pod if somebody will. */
BPF_HASH(unserved, struct lc_drop_key, struct lc_drop_count, 65536);
BPF_TABLE("lru_hash", struct lc_source_key, u64, sources, 16384);

struct lc_last_drop {
    u64 at_ns;
    u32 sequence;
    u8 kind;
    u8 pad[3];
};

BPF_TABLE("lru_hash", struct lc_connection, struct lc_last_drop, dropped_attempts, 65536);
BPF_TABLE("lru_hash", struct lc_connection, struct lc_last_drop, dropped_connections, 65536);

/* Attempts that nothing answered, already counted. Swept from user space, never evicted. */
BPF_HASH(lost_attempts, struct lc_connection, struct lc_last_drop, 131072);

INLINE bool attempt_was_lost(struct lc_connection *connection, u32 sequence) {
    struct lc_last_drop *last = lost_attempts.lookup(connection);

    return last && last->sequence == sequence;
}

/* A connection attempt is told from an older one with the same addresses and ports by its sequence number. */
INLINE bool attempt_counted(struct lc_connection *connection, u32 sequence, u8 kind, u64 now) {
    struct lc_last_drop *last = dropped_attempts.lookup(connection);
    struct lc_last_drop drop = {.at_ns = now, .sequence = sequence, .kind = kind};

    if (last && last->sequence == sequence && now - last->at_ns < RETRANSMISSION_NS)
        return true;
    dropped_attempts.update(connection, &drop);
    return attempt_was_lost(connection, sequence);
}

/* Several resets, or a cut and then a reset, can answer the segments of one connection. */
INLINE bool connection_counted(struct lc_connection *connection, u8 kind, u64 now) {
    struct lc_last_drop *last = dropped_connections.lookup(connection);
    struct lc_last_drop drop = {.at_ns = now, .kind = kind};
    bool counted =
        last && now - last->at_ns < (last->kind == KIND_OVERFLOW ? RETRANSMISSION_NS : SAME_CONNECTION_NS);

    if (counted)
        drop.kind = last->kind;
    dropped_connections.update(connection, &drop);
    return counted;
}

/*
 * A client's port can fail, connect again, and fail again. A connection that the full accept queue turned
 * away, and that got in at a later try, is still the same one.
 */
INLINE void connection_begins(struct lc_connection *connection) {
    struct lc_last_drop *last = dropped_connections.lookup(connection);

    if (last && last->kind != KIND_OVERFLOW)
        dropped_connections.delete(connection);
}

INLINE void count_source(u64 netns, struct lc_address *address) {
    struct lc_source_key key = {.netns = netns, .address = *address};
    u64 *count = sources.lookup(&key), one = 1;

    if (count)
        __sync_fetch_and_add(count, 1);
    else
        sources.update(&key, &one);
}

INLINE struct lc_drop_count *drop_count_of(struct lc_drop_key *key, int hook, u64 now) {
    struct lc_drop_count zero = {.first_ns = now};
    struct lc_drop_count *count = drops.lookup(key);

    if (!count) {
        drops.insert(key, &zero);
        count = drops.lookup(key);
    }
    if (!count)
        count_lost(hook);
    return count;
}

INLINE void count_late(u64 netns, u16 port, u32 facts) {
    u64 now = bpf_ktime_get_boot_ns();
    struct lc_drop_key key = {.netns = netns, .port = port, .kind = KIND_LATE, .facts = facts};
    struct lc_drop_count *count = drop_count_of(&key, HOOK_SET_STATE, now);

    if (!count)
        return;
    __sync_fetch_and_add(&count->count, 1);
    count->last_ns = now;
    count_event(HOOK_SET_STATE);
}

INLINE void count_drop(int hook, u64 netns, struct lc_connection *connection, u8 kind, u32 facts) {
    u64 now = bpf_ktime_get_boot_ns();
    struct lc_drop_key key = {.netns = netns, .port = connection->local_port, .kind = kind, .facts = facts};
    struct lc_drop_count *count = drop_count_of(&key, hook, now);

    if (!count)
        return;
    __sync_fetch_and_add(&count->count, 1);
    count->last_ns = now;
    count_source(netns, &connection->remote);
    if (count->count <= SAMPLES_PER_KEY) {
        struct lc_record record = {
            .at_ns = now,
            .netns = netns,
            .type = RECORD_DROP,
            .port = key.port,
            .source = connection->remote,
            .source_port = connection->remote_port,
            .kind = kind,
            .facts = facts,
        };

        send_record(hook, &record);
    } else {
        count_event(hook);
    }
}

INLINE void count_unserved(int hook, u64 netns, struct lc_connection *connection, u32 facts) {
    u64 now = bpf_ktime_get_boot_ns();
    struct lc_drop_key key = {
        .netns = netns, .port = connection->local_port, .kind = KIND_REFUSED, .facts = facts};
    struct lc_drop_count zero = {.first_ns = now};
    struct lc_drop_count *count = unserved.lookup(&key);

    if (!count) {
        unserved.insert(&key, &zero);
        count = unserved.lookup(&key);
    }
    if (!count) {
        count_lost(hook);
        return;
    }
    __sync_fetch_and_add(&count->count, 1);
    count->last_ns = now;
}
