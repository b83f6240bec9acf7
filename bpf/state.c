/* What is known of each network namespace, port and container; read by every program. */

BPF_HASH(pods, u64, struct lc_pod, 4096);
BPF_HASH(ports, struct lc_port_key, struct lc_port, 16384);
BPF_HASH(containers, u32, struct lc_container, 8192);
/* Ports that any pod has served since the start: a first filter, never cleared. */
BPF_ARRAY(served_ports, u8, 65536);
BPF_HASH(listeners, u64, struct lc_port_key, 16384);
BPF_ARRAY(hook_counts, struct lc_hook_count, HOOKS);
BPF_RINGBUF_OUTPUT(records, 64);

/*
 * Where a field is. For a struct with the paddings that bpftool writes (struct net), clang's member access
 * and its offsetof disagree by 160 bytes; offsetof agrees with BTF. It has to be integer arithmetic: a
 * pointer plus a constant is turned back into the member access.
 */
#define ADDRESS_OF(from, field) ((void *)((u64)(from) + (u64) & ((typeof(from))0)->field))

#define READ(from, field)                                                                                    \
    ({                                                                                                       \
        typeof((from)->field) value_;                                                                        \
        __builtin_memset(&value_, 0, sizeof(value_));                                                        \
        bpf_probe_read_kernel(&value_, sizeof(value_), ADDRESS_OF(from, field));                             \
        value_;                                                                                              \
    })

/* Whether a pod may serve the port: costs one array lookup, for paths that run for every connection or
 * segment. */
INLINE bool may_be_served(u16 port) {
    int index = port;
    u8 *served = served_ports.lookup(&index);

    return served && *served;
}

INLINE void count_event(int hook) {
    struct lc_hook_count *counts = hook_counts.lookup(&hook);

    if (counts)
        __sync_fetch_and_add(&counts->events, 1);
}

INLINE void count_lost(int hook) {
    struct lc_hook_count *counts = hook_counts.lookup(&hook);

    if (counts)
        __sync_fetch_and_add(&counts->lost, 1);
}

INLINE void send_record(int hook, struct lc_record *record) {
    if (records.ringbuf_output(record, sizeof(*record), 0))
        count_lost(hook);
    else
        count_event(hook);
}

INLINE u64 cookie_of(struct net *net) {
    u64 cookie = 0;

    bpf_probe_read_kernel(&cookie, sizeof(cookie), ADDRESS_OF(net, net_cookie));
    return cookie;
}

INLINE u64 netns_of(struct sock *sk) {
    return cookie_of(READ(sk, __sk_common.skc_net.net));
}

INLINE bool exiting(void) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();

    return READ(task, flags) & 0x4; /* PF_EXITING, include/linux/sched.h */
}

INLINE u32 container_facts(struct lc_port *port) {
    u32 init_pid = port->init_pid;
    struct lc_container *container = containers.lookup(&init_pid);

    return container ? container->facts & (FACT_SIGNALLED | FACT_EXITED) : 0;
}

INLINE u32 pod_facts(u64 netns) {
    struct lc_pod *pod = pods.lookup(&netns);

    return pod ? pod->facts & (FACT_DELETED | FACT_PRESTOP_DECLARED) : 0;
}

INLINE bool tells(u64 netns, u32 evidence) {
    struct lc_pod *pod = pods.lookup(&netns);

    return pod && pod->evidence & evidence;
}

/* What holds for a connection that arrives at a port now. */
INLINE u32 facts_of_arrival(u64 netns, struct lc_port *port) {
    return pod_facts(netns) | container_facts(port) | (port->facts & (FACT_LISTENED | FACT_CLOSED));
}

/*
 * What held when a connection was cut. An exit that cuts connections ends a phase: the cut belongs to the
 * phase before the exit, not to the one that begins with it.
 */
INLINE u32 facts_of_cut(u64 netns, struct lc_port *port) {
    u32 facts = facts_of_arrival(netns, port);

    if (!exiting())
        return facts;
    facts &= ~(u32)FACT_EXITED;
    return port->facts & FACT_CLOSED_BY_EXIT ? facts & ~(u32)FACT_CLOSED : facts;
}
