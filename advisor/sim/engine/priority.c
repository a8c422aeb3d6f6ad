/* Multifactor priority of the model of Slurm, with the fair tree. */

/* Return the CPUs that a job's size counts: at its submission those that it asks for, later those that it will hold. */
static double counted_cpus(const State *s, const Slurm *m, const Job *job, double now) {
    if (now > job->since_time) return cpus_to_hold(s, m, job);
    return (double)most_of(1, job->cpus > 0 ? job->cpus : (int64_t)job->gpus * job->cpus_per_gpu);
}

/* Return the factor of a job's size, from 0 to 1. */
static double size_factor(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    const Control *control = m->control;
    /* Without a node count a job asks for one node, and at least for a CPU. */
    double nodes = (double)(part_of(job) != NONE ? job->nodes_min : 1) / (double)s->n_nodes;
    double cpus = counted_cpus(s, m, job, now) / control->cluster_cpus;
    if (control->is_relative) {
        /* Limits count in minutes. */
        double factor = most(nodes, cpus) / most(1.0, floor(least(job->limit_s, YEAR_S) / 60.0));
        return control->favors_small ? 1.0 - factor : factor;
    }
    if (control->favors_small) return 0.5 * (1.0 - nodes + (1.0 - cpus));
    return 0.5 * (nodes + cpus);
}

/* Return the points of a job for the CPUs, memory and GPUs that it asks for, by default as shares of its partition's. */
static double tres_points(const State *s, const Slurm *m, int64_t row, int64_t partition, double now) {
    const Control *control = m->control;
    const Job *job = &s->jobs[row];
    const Partition *home = &m->partitions[partition];
    double cpus = counted_cpus(s, m, job, now);
    double memory = (double)most_of(job->nodes_min * job->memory_mib_per_node, job->gpus * (int64_t)job->memory_mib_per_gpu);
    if (control->weighs_tres == 2)
        return control->weight_cpus * cpus + control->weight_gpus * job->gpus + control->weight_memory * memory;
    return control->weight_cpus * cpus / home->cpus + control->weight_gpus * job->gpus / home->gpus +
           control->weight_memory * memory / home->memory_mib;
}

/* Return a number rounded down; faster than floor, which most processors that it has to run on lack. */
static inline double whole(double number) {
    if (!(-1e15 < number && number < 1e15)) return floor(number);
    double cut = (double)(int64_t)number;
    return cut > number ? cut - 1.0 : cut;
}

/* Return the priority of a pending job in a partition; whole points, at least 1, as Slurm has them. */
static inline double partition_priority(State *s, Slurm *m, int64_t row, int64_t partition, double now) {
    const Job *job = &s->jobs[row];
    const Control *control = m->control;
    /* slurmctld counts in whole seconds of its clock. */
    double age = least(1.0, most(0.0, whole(now) - whole(m->eligible_time[row])) / control->max_age_s);
    const Association *association = &m->associations[m->association[row]];
    double points = control->weight_age * age + control->weight_fairshare * association->factor;
    if (control->weight_size > 0.0) points += control->weight_size * size_factor(s, m, row, now);
    points += control->weight_qos * m->qos_factor[job->qos];
    if (control->weight_partition > 0.0) points += control->weight_partition * m->partitions[partition].factor;
    if (control->weight_association > 0.0) points += control->weight_association * association->priority;
    if (control->weighs_tres) points += tres_points(s, m, row, partition, now);
    return most(1.0, whole(points - job->nice + m->points[row]));
}

/* Return the priority of a pending job in its first partition. */
EXPORT double priority_of(State *s, Slurm *m, int64_t row, double now) {
    return partition_priority(s, m, row, m->partition[row], now);
}

/* Calculate the priority of a job in each of its partitions. */
EXPORT void prioritise(State *s, Slurm *m, int64_t row, double now) {
    s->jobs[row].priority = priority_of(s, m, row, now);
    for (int32_t entry = next_entry(s, m, (int32_t)row); entry != NONE; entry = next_entry(s, m, entry)) {
        Entry *extra = &m->extras[entry - s->n_jobs];
        extra->priority = partition_priority(s, m, row, extra->partition, now);
    }
}

/* Recalculate the priority of every pending job and sort the line; return whether that changed the order. */
EXPORT bool reprioritise(State *s, Slurm *m, double now) {
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t entry = m->line[place];
        double priority = partition_priority(s, m, row_of(s, m, entry), partition_of(s, m, entry), now);
        if (m->control->only_rises) priority = most(priority, points_of(s, m, entry));
        if (entry < s->n_jobs) s->jobs[entry].priority = priority;
        else m->extras[entry - s->n_jobs].priority = priority;
    }
    return sort_line(s, m);
}

/* Return what the allocation of a running job costs per second: its GPUs, unless weights of its resources are given. */
static double billed(const State *s, const Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    const Control *control = m->control;
    double cpu = control->billing_cpu, gib = control->billing_mem, gpu = control->billing_gpu;
    if (cpu == 0.0 && gib == 0.0) return gpu * (job->held + job->idle_gpus);
    double cost = 0.0;
    for (int64_t at = job->pool; at < job->pool + job->span; at++) {
        Portion part = portion_of(job, &s->nodes[s->held_nodes[at]], s->held_gpus[at]);
        cost += cpu * (double)part.cpus + gib * (double)part.memory_mib / 1024.0 + gpu * (double)part.gpus;
    }
    return cost;
}

/* Add a time of a running job to the use of its user, account and those above, and to the minutes of its limits. */
static void add_use(State *s, Slurm *m, int64_t row, double seconds, double fading) {
    const Job *job = &s->jobs[row];
    Association *association = &m->associations[m->association[row]];
    double used = seconds * billed(s, m, row) * fading;
    association->usage += used;
    for (int32_t account = association->account; account != NONE; account = m->account_parent[account])
        m->account_usage[account] += used;
    count_used(m, row, seconds * (job->held + job->idle_gpus) * fading);
}

/* Return what is left of use after a time; Slurm's own approximation of the half-life. */
static double faded(const Slurm *m, double passed) {
    double half_life_s = m->control->half_life_s;
    return half_life_s <= 0.0 ? 1.0 : pow(1.0 - 0.693 / half_life_s, passed);
}

/* Charge the use of a running job since its last charge to its user and account, in whole seconds as in Slurm. */
EXPORT void charge(State *s, Slurm *m, int64_t row, double now) {
    double since = most(m->charged_time[row], s->jobs[row].since_time);
    if (now <= since) return;
    add_use(s, m, row, floor(now) - floor(since), 1.0);
    m->charged_time[row] = now;
}

/* Charge a job that stops; slurmctld does so only where it enforces limits, and lets this use decay twice. */
static void charge_stopped(State *s, Slurm *m, int64_t row, double now) {
    if (!m->control->charges_ends) return;
    double since = most(m->charged_time[row], s->jobs[row].since_time), passed = floor(now) - floor(since);
    if (passed > 0.0) add_use(s, m, row, passed, faded(m, passed));
    m->charged_time[row] = now;
}

/* The siblings below the nearest common account of two users: what each used per share, and its account, if it is one. */
typedef struct {
    double use, other_use;
    int32_t account, other_account;
} Siblings;

static double use_of(const Slurm *m, int64_t user, int32_t account) {
    if (account != NONE) return m->account_usage[account] / m->account_shares[account];
    return m->associations[user].usage / m->associations[user].shares;
}

static Siblings siblings_of(const Slurm *m, int64_t one, int64_t other) {
    int32_t above = m->associations[one].account, other_above = m->associations[other].account;
    Siblings found = {.account = NONE, .other_account = NONE};
    while (above != other_above) {
        int32_t depth = above == NONE ? 0 : m->account_depth[above];
        int32_t other_depth = other_above == NONE ? 0 : m->account_depth[other_above];
        if (depth >= other_depth) {
            found.account = above;
            above = m->account_parent[above];
        }
        if (other_depth >= depth) {
            found.other_account = other_above;
            other_above = m->account_parent[other_above];
        }
    }
    found.use = use_of(m, one, found.account);
    found.other_use = use_of(m, other, found.other_account);
    return found;
}

/* Return whether a user ranks before another: the siblings through which they differ decide, users before accounts. */
static bool uses_less(const Slurm *m, int64_t one, int64_t other) {
    Siblings found = siblings_of(m, one, other);
    if (found.use != found.other_use) return found.use < found.other_use;
    if (found.account == found.other_account) return one < other;
    return found.account < found.other_account; /* NONE is the least */
}

/* Return whether a user belongs to a top account that used nothing, as root does. */
static bool ties_with_root(const Slurm *m, int64_t user) {
    int32_t account = m->associations[user].account;
    while (m->account_parent[account] != NONE) account = m->account_parent[account];
    return m->account_usage[account] == 0.0;
}

/* Rank users by use over shares, least first, level by level from the top accounts down.
 *
 * The factor follows from the rank as in Slurm's fair tree: 1 for the first user, then lower by one part in the number
 * of users. The first is root, who uses nothing. A user ranks like the one before if the siblings through which they
 * differ used as much per share.
 */
static void fair_tree(Slurm *m) {
    int64_t count = m->n_associations;
    /* The order of the last time is close to the new one. */
    for (int64_t place = 1; place < count; place++) {
        int32_t row = m->ranking[place];
        int64_t at = place;
        for (; at > 0 && uses_less(m, row, m->ranking[at - 1]); at--) m->ranking[at] = m->ranking[at - 1];
        m->ranking[at] = row;
    }
    int64_t rank = count + 1;
    for (int64_t place = 0; place < count; place++) {
        int32_t row = m->ranking[place];
        bool tied = false;
        if (place == 0) {
            tied = ties_with_root(m, row);
        } else {
            Siblings found = siblings_of(m, row, m->ranking[place - 1]);
            tied = found.use == found.other_use;
        }
        if (!tied) rank = count - place;
        m->associations[row].factor = (double)rank / (double)(count + 1);
    }
}

/* Charge the running jobs, decay all usage, the new included, and rank the users. */
EXPORT void recalculate(State *s, Slurm *m, double now) {
    Control *control = m->control;
    double passed = now - control->calc_time;
    control->calc_time = now;
    for (int64_t place = 0; place < s->tally->running; place++) charge(s, m, s->running[place], now);
    double fading = faded(m, passed);
    for (int64_t row = 0; row < m->n_associations; row++) m->associations[row].usage *= fading;
    for (int64_t account = 0; account < m->n_account_usage; account++) m->account_usage[account] *= fading;
    fade_counters(m, fading);
    if (control->weight_fairshare > 0.0) fair_tree(m);
}
