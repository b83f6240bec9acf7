/*
 * Layouts that the BPF programs and agent/kernel/layout.py share. Addresses are IPv6, IPv4 in its mapped
 * form; ports are in host byte order; times are bpf_ktime_get_boot_ns() (CLOCK_BOOTTIME).
 */

#define INLINE static __attribute__((always_inline)) inline

/* agent/core/phases.py, class Fact */
enum lc_fact {
    FACT_DELETED = 1,
    FACT_PRESTOP_DECLARED = 2,
    FACT_SIGNALLED = 4,
    FACT_EXITED = 8,
    FACT_LISTENED = 16,
    FACT_CLOSED = 32,
    FACT_GONE = 64,
    /* Of a port only, never in a drop_key: FACT_CLOSED came from the exit of the process. */
    FACT_CLOSED_BY_EXIT = 256,
};

/* agent/core/orders.py, class HookEvidence: what is told of a pod, to see whether its preStop hook runs. */
enum lc_evidence {
    EVIDENCE_PROCESS = 1,
    EVIDENCE_KUBELET_CONNECTION = 2,
};

/* agent/kernel/layout.py, KIND_OF_CODE */
enum lc_kind {
    KIND_LATE = 0, /* no drop: a dying pod accepted the connection */
    KIND_REFUSED = 1,
    KIND_STALE = 2,
    KIND_UNACCEPTED = 3,
    KIND_UNREAD = 4,
    KIND_UNANSWERED = 5,
    KIND_ABORTED = 6,
    KIND_UNREACHABLE = 7,
    KIND_OVERFLOW = 8,
};

/* agent/kernel/hooks.py, order of HOOKS */
enum lc_hook {
    HOOK_SEND_RESET,
    HOOK_SET_STATE,
    HOOK_SIGNAL,
    HOOK_EXIT,
    HOOK_KFREE_SKB,
    HOOK_CONSUME_SKB,
    HOOK_RETRANSMIT,
    HOOK_TCP_PROBE,
    HOOK_EXEC,
    HOOKS,
};

struct lc_address {
    u64 high;
    u64 low;
};

/* A connection as the pod sees it: local is the pod. */
struct lc_connection {
    struct lc_address local;
    struct lc_address remote;
    u16 local_port;
    u16 remote_port;
    u32 pad;
};

/* Written from user space only: what is known of the pod that owns a network namespace. */
struct lc_pod {
    u32 facts;    /* FACT_DELETED, FACT_PRESTOP_DECLARED, FACT_GONE */
    u32 evidence; /* enum lc_evidence */
};

/* A container, keyed by the host pid of its init process. Written by the kernel side, seeded at start. */
struct lc_container {
    u64 netns;
    u64 signalled_ns;
    u64 exited_ns;
    u32 facts; /* FACT_SIGNALLED, FACT_EXITED */
    u32 pad;
};

struct lc_port_key {
    u64 netns;
    u16 port;
    u16 pad[3];
};

struct lc_port {
    u64 listener; /* struct sock of a listener, 0 when unknown */
    u64 opened_ns;
    u64 closed_ns;
    u32 listeners;
    u32 facts; /* FACT_LISTENED, FACT_CLOSED, FACT_CLOSED_BY_EXIT */
    u32 init_pid;
    u32 pad;
};

struct lc_drop_key {
    u64 netns;
    u16 port;
    u8 kind;
    u8 facts;
    u32 pad;
};

struct lc_drop_count {
    u64 count;
    u64 first_ns;
    u64 last_ns;
};

struct lc_source_key {
    u64 netns;
    struct lc_address address;
};

struct lc_hook_count {
    u64 events; /* records sent through the ring buffer and drops counted */
    u64 lost;   /* what a full map or a full ring buffer did not take */
};

struct lc_process_name {
    char comm[16];
};

enum lc_record_type {
    RECORD_LISTENER_OPENED = 1,
    RECORD_LISTENER_CLOSED = 2,
    RECORD_SIGNAL = 3,
    RECORD_EXIT = 4,
    RECORD_DROP = 5,
    RECORD_PROCESS_ENTERED = 6,
    RECORD_ENTERED_PROCESS_ENDED = 7,
    RECORD_KUBELET_CONNECTED = 8,
    RECORD_KUBELET_DISCONNECTED = 9,
};

struct lc_record {
    u64 at_ns;
    u64 netns;
    struct lc_address source; /* drop */
    u32 type;
    u32 pid;      /* the process that caused it (listener, signal: the sender), or entered */
    u32 init_pid; /* the container's init process */
    s32 value;    /* exit, end: wait status; signal: result; listener closed: 1 = by exit */
    u16 port;
    u16 source_port;
    u8 kind;
    u8 facts;
    u8 signal;
    u8 pad;
    char comm[16];
};
