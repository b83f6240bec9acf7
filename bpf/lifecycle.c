/* The stop signal and the exit of a container's init process. */

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
    struct nsproxy *proxies;
    u32 init_pid = number_of(task);

    container = containers.lookup(&init_pid);
    if (container && container->facts & FACT_EXITED)
        container = 0; /* of an older process with the same pid */
    if (!container && (!init_pid || target.level == 0 || target.number != 1))
        return 0;
    sender = place_of((struct task_struct *)bpf_get_current_task());
    if (sender.level >= target.level && target.level)
        return 0; /* from inside the container, or one like it */
    if (info <= 1) {
        /* SEND_SIG_NOINFO: cgroup.kill; SEND_SIG_PRIV: the kernel itself */
        if (signal != 9 || info == 1)
            return 0;
    } else if (READ((struct kernel_siginfo *)info, si_code) != 0) {
        return 0; /* not from kill() or pidfd_send_signal() */
    }
    if (!container) {
        proxies = READ(task, nsproxy);
        if (!proxies)
            return 0;
        empty.netns = cookie_of(READ(proxies, net_ns));
        if (empty.netns == HOST_NETNS)
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
        container->signalled_ns = bpf_ktime_get_ns();
        container->facts |= FACT_SIGNALLED;
    }
    record.at_ns = bpf_ktime_get_ns();
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

int on_exit(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *task = (struct task_struct *)ctx->args[0];
    u32 init_pid = number_of_current();
    struct lc_container *container = containers.lookup(&init_pid);
    struct signal_struct *group;
    struct lc_record record = {};

    if (!container || container->facts & FACT_EXITED)
        return 0;
    group = READ(task, signal);
    if (READ(group, live.counter))
        return 0; /* another thread still runs */
    container->exited_ns = bpf_ktime_get_ns();
    container->facts |= FACT_EXITED;
    record.at_ns = container->exited_ns;
    record.netns = container->netns;
    record.type = RECORD_EXIT;
    record.pid = init_pid;
    record.init_pid = init_pid;
    record.value = READ(task, exit_code);
    bpf_get_current_comm(record.comm, sizeof(record.comm));
    send_record(HOOK_EXIT, &record);
    return 0;
}
