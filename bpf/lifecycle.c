/* The stop signal and the exit of a container's init process, and processes that enter a container. */

/* Processes that were started in a pod from outside: the pod's network namespace by pid. */
BPF_HASH(entered, u32, u64, 4096);
/* How many there are, so that the exit of any other process costs one array lookup more. */
BPF_ARRAY(entered_count, u32, 1);

struct lc_pid_place {
    struct pid_namespace *namespace;
    u32 level;
    u32 number;
};

INLINE struct lc_pid_place place_of(struct task_struct *task) {
    struct pid *pid = READ(task, thread_pid);
    struct lc_pid_place place = {.level = READ(pid, level)};

    if (place.level <= 31) {
        bpf_probe_read_kernel(&place.namespace, sizeof(place.namespace), &pid->numbers[place.level].ns);
        bpf_probe_read_kernel(&place.number, sizeof(place.number), &pid->numbers[place.level].nr);
    }
    return place;
}

/* 0 for a task that is at its very end. */
INLINE u64 netns_of_task(struct task_struct *task) {
    struct nsproxy *proxies = READ(task, nsproxy);

    return proxies ? cookie_of(READ(proxies, net_ns)) : 0;
}

INLINE u64 netns_of_current(void) {
    return netns_of_task((struct task_struct *)bpf_get_current_task());
}

/* Signals that may stop a container which is not being deleted; others (HUP, USR1, WINCH...) control it. */
INLINE bool stops_by_itself(int signal) {
    return signal == 2 || signal == 3 || signal == 9 || signal == 15 || signal >= 34;
}

int on_signal(struct bpf_raw_tracepoint_args *ctx) {
    int signal = ctx->args[0];
    u64 info = ctx->args[1];
    struct task_struct *task = (struct task_struct *)ctx->args[2];
    struct task_struct *leader = READ(task, group_leader);
    struct lc_pid_place target = place_of(leader), sender;
    struct lc_container empty = {}, *container;
    struct lc_record record = {};
    u32 init_pid = number_of(task);

    container = containers.lookup(&init_pid);
    if (container && container->facts & FACT_EXITED)
        container = 0; /* of an older process with the same pid */
    if (!container && (!init_pid || target.level == 0 || target.number != 1))
        return 0;
    sender = place_of((struct task_struct *)bpf_get_current_task());
    if (sender.level >= target.level && target.level)
        return 0; /* from inside the container, or one like it */
    if (container && !target.level && netns_of_current() == container->netns)
        return 0; /* from inside a pod that shares the host's pid namespace */
    if (info <= 1) {
        /* SEND_SIG_NOINFO: cgroup.kill; SEND_SIG_PRIV: the kernel itself */
        if (signal != 9 || info == 1)
            return 0;
    } else if (READ((struct kernel_siginfo *)info, si_code) != 0) {
        return 0; /* not from kill() or pidfd_send_signal() */
    }
    if (!container) {
        empty.netns = netns_of_task(task);
        if (!empty.netns || empty.netns == HOST_NETNS)
            return 0;
        containers.update(&init_pid, &empty);
        container = containers.lookup(&init_pid);
        if (!container) {
            count_lost(HOOK_SIGNAL);
            return 0;
        }
    }
    if (!stops_by_itself(signal) && !(pod_facts(container->netns) & FACT_DELETED))
        return 0;
    if (!(container->facts & FACT_SIGNALLED)) {
        container->signalled_ns = bpf_ktime_get_boot_ns();
        container->facts |= FACT_SIGNALLED;
    }
    record.at_ns = bpf_ktime_get_boot_ns();
    record.netns = container->netns;
    record.type = RECORD_SIGNAL;
    record.pid = number_of_current();
    record.init_pid = init_pid;
    record.signal = signal;
    record.value = ctx->args[4];
    bpf_get_current_comm(record.comm, sizeof(record.comm));
    send_record(HOOK_SIGNAL, &record);
    return 0;
}

/*
 * The runtime starts a process in a container: an exec hook, an exec probe. Its parent is the runtime,
 * outside the container's pid namespace. That is true of PID 1 as well, which is the container itself, and of
 * no other process that the container starts.
 */
int on_exec(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *task = (struct task_struct *)ctx->args[0];
    u64 netns = netns_of_task(task);
    u32 pid = number_of_current(), *count;
    struct lc_record record = {};
    struct lc_pid_place place;
    int zero = 0;

    if (netns == HOST_NETNS || !tells(netns, EVIDENCE_PROCESS))
        return 0;
    place = place_of(task);
    if (place.number == 1 || place_of(READ(task, real_parent)).level >= place.level)
        return 0;
    /* Known when it replaces itself by a further program, as a shell does with the last one it runs. */
    if (entered.lookup(&pid))
        return 0;
    count = entered_count.lookup(&zero);
    if (!count || entered.insert(&pid, &netns)) {
        count_lost(HOOK_EXEC);
        return 0;
    }
    __sync_fetch_and_add(count, 1);
    record.at_ns = bpf_ktime_get_boot_ns();
    record.netns = netns;
    record.type = RECORD_PROCESS_ENTERED;
    record.pid = pid;
    bpf_get_current_comm(record.comm, sizeof(record.comm));
    send_record(HOOK_EXEC, &record);
    return 0;
}

INLINE u64 *entered_into(u32 pid) {
    int zero = 0;
    u32 *count = entered_count.lookup(&zero);

    return count && *count ? entered.lookup(&pid) : 0;
}

INLINE void process_left(u32 pid) {
    int zero = 0;
    u32 *count = entered_count.lookup(&zero);

    if (!entered.delete(&pid) && count)
        __sync_fetch_and_add(count, -1);
}

INLINE void send_exit(u32 type, u64 netns, u32 pid, struct task_struct *task, u64 now) {
    struct lc_record record = {
        .at_ns = now,
        .netns = netns,
        .type = type,
        .pid = pid,
        .init_pid = type == RECORD_EXIT ? pid : 0,
        .value = READ(task, exit_code),
    };

    bpf_get_current_comm(record.comm, sizeof(record.comm));
    send_record(HOOK_EXIT, &record);
}

int on_exit(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *task = (struct task_struct *)ctx->args[0];
    u32 pid = number_of_current();
    struct lc_container *container = containers.lookup(&pid);
    u64 *netns = entered_into(pid), now;
    struct signal_struct *group;

    if (container && container->facts & FACT_EXITED)
        container = 0;
    if (!container && !netns)
        return 0;
    group = READ(task, signal);
    if (READ(group, live.counter))
        return 0; /* another thread still runs */
    now = bpf_ktime_get_boot_ns();
    if (container) {
        container->exited_ns = now;
        container->facts |= FACT_EXITED;
        send_exit(RECORD_EXIT, container->netns, pid, task, now);
    }
    if (netns) {
        send_exit(RECORD_ENTERED_PROCESS_ENDED, *netns, pid, task, now);
        process_left(pid);
    }
    return 0;
}
