/* The number by which the agent knows a process: that of its own pid namespace, as in its /proc. */

INLINE u32 number_of(struct task_struct *task) {
#ifndef PID_NAMESPACE
    return READ(task, tgid);
#else
    /* The node is itself a container: the kernel's own numbers are those of the machine that it runs on. */
    struct task_struct *leader = READ(task, group_leader);
    struct pid *pid = READ(leader, thread_pid);
    u32 level = READ(pid, level);
    struct upid place = {};

    for (int at = 0; at < PID_LEVELS; at++) {
        if (at > level)
            return 0;
        bpf_probe_read_kernel(&place, sizeof(place), &pid->numbers[at]);
        if (READ(place.ns, ns.inum) == PID_NAMESPACE)
            return place.nr;
    }
    return 0;
#endif
}

INLINE u32 number_of_current(void) {
#ifndef PID_NAMESPACE
    return bpf_get_current_pid_tgid() >> 32;
#else
    return number_of((struct task_struct *)bpf_get_current_task());
#endif
}

/* Whether the namespace is that of the node's own processes, which have no container's init process. */
INLINE bool is_nodes_own(struct pid_namespace *namespace, u32 level) {
#ifndef PID_NAMESPACE
    return level == 0;
#else
    return READ(namespace, ns.inum) == PID_NAMESPACE;
#endif
}
