/* Multifactor priority of the model of Slurm, with the fair tree, and the line of pending jobs sorted by it. */

/* Return the priority of a pending job; whole points, at least 1, as Slurm has them. */
EXPORT double priority_of(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    const Control *control = m->control;
    double age = least(1.0, most(0.0, now - job->submit_time) / control->max_age_s);
    /* Without a node count a job asks for one node, and at least for a CPU. */
    double nodes = (double)(per_node(s, row) > 0 ? job->nodes_min : 1) / (double)s->n_nodes;
    double cpus = (double)most_of(1, (int64_t)job->gpus * job->cpus_per_gpu);
    double size = 0.5 * (nodes + cpus / control->cluster_cpus);
    double points = control->weight_age * age + control->weight_fairshare * m->associations[m->association[row]].factor +
                    control->weight_size * size + control->weight_qos * m->qos_factor[job->qos];
    return most(1.0, floor(points - job->nice));
}

static inline bool stands_before(const State *s, int32_t one, int32_t other) {
    double first = s->jobs[one].priority, second = s->jobs[other].priority;
    return first > second || (first == second && one < other);
}

/* Insert a job into the line by priority; equal priorities are ordered by submit time and id. */
EXPORT void insert(State *s, Slurm *m, int64_t row) {
    int64_t pending = s->tally->pending, low = 0, high = pending;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (stands_before(s, m->line[middle], (int32_t)row)) low = middle + 1;
        else high = middle;
    }
    memmove(m->line + low + 1, m->line + low, (size_t)(pending - low) * sizeof *m->line);
    m->line[low] = (int32_t)row;
    s->tally->pending = pending + 1;
}

/* Remove the job at a place from the line; the caller updates the count of pending jobs. */
EXPORT void strike(State *s, Slurm *m, int64_t place) {
    memmove(m->line + place, m->line + place + 1, (size_t)(s->tally->pending - 1 - place) * sizeof *m->line);
}

/* Sort a part of the line from `low` to before `high` by merging; equal jobs do not exist. */
static void merge_sort(const State *s, int32_t *line, int32_t *spare, int64_t low, int64_t high) {
    if (high - low < 12) {
        for (int64_t place = low + 1; place < high; place++) {
            int32_t row = line[place];
            int64_t at = place;
            for (; at > low && stands_before(s, row, line[at - 1]); at--) line[at] = line[at - 1];
            line[at] = row;
        }
        return;
    }
    int64_t middle = (low + high) / 2, left = 0, right = middle, place = low;
    merge_sort(s, line, spare, low, middle);
    merge_sort(s, line, spare, middle, high);
    if (stands_before(s, line[middle - 1], line[middle])) return;
    memcpy(spare, line + low, (size_t)(middle - low) * sizeof *line);
    while (left < middle - low)
        if (right < high && stands_before(s, line[right], spare[left])) line[place++] = line[right++];
        else line[place++] = spare[left++];
}

/* Sort the line by priority; return whether that changed it. */
EXPORT bool sort_line(State *s, Slurm *m) {
    int64_t pending = s->tally->pending, place = 1;
    while (place < pending && stands_before(s, m->line[place - 1], m->line[place])) place++;
    if (place >= pending) return false;
    merge_sort(s, m->line, m->spare, 0, pending);
    return true;
}

/* Recalculate the priority of every pending job and sort the line; return whether that changed the order. */
EXPORT bool reprioritise(State *s, Slurm *m, double now) {
    for (int64_t place = 0; place < s->tally->pending; place++) {
        int32_t row = m->line[place];
        s->jobs[row].priority = priority_of(s, m, row, now);
    }
    return sort_line(s, m);
}

/* Charge the use of a running job since its last charge to its user and account, in whole seconds as in Slurm. */
EXPORT void charge(State *s, Slurm *m, int64_t row, double now) {
    double since = most(m->charged_time[row], s->jobs[row].since_time);
    if (now <= since) return;
    double used = (floor(now) - floor(since)) * s->jobs[row].held;
    Association *association = &m->associations[m->association[row]];
    association->usage += used;
    m->account_usage[association->account] += used;
    m->charged_time[row] = now;
}

static bool uses_less(const Slurm *m, int64_t one, int64_t other) {
    const Association *first = &m->associations[one], *second = &m->associations[other];
    if (first->account != second->account) {
        double mine = m->account_usage[first->account] / m->account_shares[first->account];
        double theirs = m->account_usage[second->account] / m->account_shares[second->account];
        return mine < theirs || (mine == theirs && first->account < second->account);
    }
    return first->usage < second->usage || (first->usage == second->usage && one < other);
}

/* Rank accounts, and within them users, by use over shares, least first; the users of an account have equal shares.
 *
 * The factor follows from the rank as in Slurm's fair tree: 1 for the first user, then lower by one part in the number
 * of users. The first is root, who uses nothing. Users with the same use of the same account share a rank, and users
 * without use in an account without use share that of root.
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
        Association *association = &m->associations[m->ranking[place]];
        bool tied = m->account_usage[association->account] == 0.0;
        if (place > 0 && !tied) {
            const Association *before = &m->associations[m->ranking[place - 1]];
            tied = before->account == association->account && before->usage == association->usage;
        }
        if (!tied) rank = count - place;
        association->factor = (double)rank / (double)(count + 1);
    }
}

/* Charge the running jobs, decay all usage, the new included, and rank the users. */
EXPORT void recalculate(State *s, Slurm *m, double now) {
    Control *control = m->control;
    double passed = now - control->calc_time;
    control->calc_time = now;
    for (int64_t place = 0; place < s->tally->running; place++) charge(s, m, s->running[place], now);
    /* Slurm's own approximation of the half-life. */
    double fading = control->half_life_s <= 0.0 ? 1.0 : pow(1.0 - 0.693 / control->half_life_s, passed);
    for (int64_t row = 0; row < m->n_associations; row++) m->associations[row].usage *= fading;
    for (int64_t account = 0; account < m->n_account_usage; account++) m->account_usage[account] *= fading;
    if (control->weight_fairshare > 0.0) fair_tree(m);
}
