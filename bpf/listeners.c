/* Which ports a pod serves: from listen() to the close of the last listener. */

/* How far a listening process is from the one that the runtime started. */
#define ANCESTORS 16

INLINE u32 level_of(struct task_struct *task) {
    return READ(READ(task, thread_pid), level);
}

INLINE struct cgroup *cgroup_of(struct task_struct *task) {
    return READ(READ(task, cgroups), dfl_cgrp);
}

/*
 * PID 1 of the pid namespace. Where the containers of a pod share one (shareProcessNamespace), that is the
 * pause process, and the container's init is the ancestor that the runtime started. An exec hook has such an
 * ancestor too, itself, but it is in the cgroup of PID 1.
 */
INLINE u32 init_pid_of_current(void) {
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct task_struct *first = READ(task, group_leader), *reaper;
    struct pid *pid = READ(task, thread_pid);
    u32 level = READ(pid, level);
    struct pid_namespace *namespace = 0;

    if (level > 31)
        return 0;
    bpf_probe_read_kernel(&namespace, sizeof(namespace), &pid->numbers[level].ns);
    if (is_nodes_own(namespace, level))
        return 0;
    reaper = READ(namespace, child_reaper);
#pragma unroll
    for (int generation = 0; generation < ANCESTORS; generation++) {
        struct task_struct *parent = READ(READ(first, real_parent), group_leader);

        if (first == reaper)
            break;
        if (level_of(parent) < level) {
            if (cgroup_of(first) != cgroup_of(reaper))
                return number_of(first);
            break;
        }
        first = parent;
    }
    return number_of(reaper);
}

INLINE bool listens_on_loopback(struct sock *sk) {
    struct lc_connection connection = {};

    read_socket(sk, &connection);
    return (connection.local.high == 0 && connection.local.low == bpf_htonll(1)) ||
           (bpf_ntohll(connection.local.low) >> 24 == 0xffff7f && connection.local.high == 0);
}

INLINE void port_is_served(u16 port) {
    int index = port;
    u8 served = 1;

    served_ports.update(&index, &served);
}

INLINE void listener_opened(struct sock *sk) {
    struct lc_port_key key = {.netns = netns_of(sk), .port = READ(sk, __sk_common.skc_num)};
    struct lc_port empty = {};
    struct lc_port *port;
    u64 pointer = (u64)sk, now = bpf_ktime_get_boot_ns();
    u32 init_pid;

    if (key.netns == HOST_NETNS || listens_on_loopback(sk))
        return;
    init_pid = init_pid_of_current();
    if (listeners.update(&pointer, &key)) {
        count_lost(HOOK_SET_STATE);
        return;
    }
    ports.insert(&key, &empty);
    port = ports.lookup(&key);
    if (!port) {
        count_lost(HOOK_SET_STATE);
        return;
    }
    __sync_fetch_and_add(&port->listeners, 1);
    port_is_served(key.port);
    port->listener = pointer;
    port->facts = FACT_LISTENED;
    port->init_pid = init_pid;
    if (init_pid) {
        struct lc_container container = {.netns = key.netns};

        struct lc_container *known = containers.lookup(&init_pid);

        /* An entry that has exited is of an older process with the same pid. */
        if ((!known || known->facts & FACT_EXITED) && containers.update(&init_pid, &container))
            count_lost(HOOK_SET_STATE);
    }
    if (port->listeners == 1) {
        struct lc_record record = {
            .at_ns = now,
            .netns = key.netns,
            .type = RECORD_LISTENER_OPENED,
            .port = key.port,
            .pid = number_of_current(),
            .init_pid = init_pid,
        };

        port->opened_ns = now;
        send_record(HOOK_SET_STATE, &record);
    }
}

INLINE void listener_closed(struct sock *sk) {
    u64 pointer = (u64)sk, now = bpf_ktime_get_boot_ns();
    struct lc_port_key *known = listeners.lookup(&pointer);
    struct lc_port_key key = {};
    struct lc_port *port;

    if (known) {
        key = *known;
        listeners.delete(&pointer);
    } else {
        key.netns = netns_of(sk);
        key.port = bpf_ntohs(READ((struct inet_sock *)sk, inet_sport));
        if (key.netns == HOST_NETNS || listens_on_loopback(sk))
            return;
    }
    port = ports.lookup(&key);
    if (!port || !port->listeners)
        return;
    if (port->listener == pointer)
        port->listener = 0;
    __sync_fetch_and_add(&port->listeners, -1);
    if (port->listeners == 0) {
        bool by_exit = exiting();
        struct lc_record record = {
            .at_ns = now,
            .netns = key.netns,
            .type = RECORD_LISTENER_CLOSED,
            .port = key.port,
            .pid = number_of_current(),
            .init_pid = port->init_pid,
            .value = by_exit,
        };

        port->closed_ns = now;
        port->facts |= by_exit ? FACT_CLOSED | FACT_CLOSED_BY_EXIT : FACT_CLOSED;
        send_record(HOOK_SET_STATE, &record);
    }
}

/*
 * A listener that is older than the programs has no known socket. Its child is a bytewise copy at this point,
 * so the child's empty tsq_node still points at the list head inside the listener.
 */
INLINE void learn_listener(struct sock *child) {
    struct lc_port_key key = {.port = READ(child, __sk_common.skc_num)};
    struct list_head *head;
    struct sock *listener;
    struct lc_port *port;

    if (!may_be_served(key.port))
        return;
    key.netns = netns_of(child);
    port = ports.lookup(&key);
    if (!port || port->listener)
        return;
    head = READ((struct tcp_sock *)child, tsq_node.next);
    listener = (struct sock *)((u64)head - __builtin_offsetof(struct tcp_sock, tsq_node));
    if (READ(listener, __sk_common.skc_state) == TCP_LISTEN &&
        READ(listener, __sk_common.skc_num) == key.port)
        port->listener = (u64)listener;
}
