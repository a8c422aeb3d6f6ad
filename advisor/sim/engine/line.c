/* The line of pending jobs: one entry for each partition that a job can start in.
 *
 * Entry `row` stands for the first partition of a job, entries from n_jobs on for its others. Without several
 * partitions, entries and rows are the same.
 */

/* Return the job of an entry. */
static inline int32_t row_of(const State *s, const Slurm *m, int32_t entry) {
    return entry < s->n_jobs ? entry : m->extras[entry - s->n_jobs].row;
}

/* Return the partition of an entry. */
static inline int32_t partition_of(const State *s, const Slurm *m, int32_t entry) {
    return entry < s->n_jobs ? m->partition[entry] : m->extras[entry - s->n_jobs].partition;
}

static inline double points_of(const State *s, const Slurm *m, int32_t entry) {
    return entry < s->n_jobs ? s->jobs[entry].priority : m->extras[entry - s->n_jobs].priority;
}

/* Return the next entry of the same job; NONE after the last. */
static inline int32_t next_entry(const State *s, const Slurm *m, int32_t entry) {
    if (entry < s->n_jobs) return m->others[entry] == NONE ? NONE : (int32_t)s->n_jobs + m->others[entry];
    int64_t following = entry - s->n_jobs + 1;
    bool is_same = following < m->n_extras && m->extras[following].row == m->extras[following - 1].row;
    return is_same ? entry + 1 : NONE;
}

static void reach_for(State *s, Slurm *m, int64_t partition) {
    Control *control = m->control;
    control->partition = partition;
    control->reached = 0;
    const int8_t *members = m->members + partition * m->members_columns;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        m->reach[node] = members[node] && !m->closed[node];
        control->reached += m->reach[node] && s->nodes[node].is_up;
    }
}

/* Make the nodes of a partition the ones that jobs can be placed on; nothing changes if all have all nodes. */
static inline void turn_to(State *s, Slurm *m, int64_t partition) {
    if (m->control->is_split && m->control->partition != partition) reach_for(s, m, partition);
}

/* Make the nodes of a partition the ones that jobs can be placed on. */
EXPORT void enter(State *s, Slurm *m, int64_t partition) { turn_to(s, m, partition); }

/* Return whether jobs of the partition at hand can be placed on a node. */
static inline bool can_use(const Slurm *m, int64_t node) { return m->reach[node]; }

/* Close the nodes of a partition for the rest of a pass, as its first job without nodes does. */
static void block(State *s, Slurm *m, int64_t partition) {
    m->partitions[partition].is_blocked = 1;
    m->control->blocked++;
    if (!m->control->is_split) return;
    const int8_t *members = m->members + partition * m->members_columns;
    for (int64_t node = 0; node < s->n_nodes; node++) m->closed[node] |= members[node];
    m->control->partition = NONE;
}

/* Open all partitions, and forget how many of their jobs were tested. */
static void open_partitions(Slurm *m) {
    m->control->blocked = 0;
    for (int64_t partition = 0; partition < m->n_partitions; partition++) {
        m->partitions[partition].is_blocked = 0;
        m->partitions[partition].tested = 0;
        m->partitions[partition].reservations = 0;
    }
    if (!m->control->is_split) return;
    memset(m->closed, 0, (size_t)m->n_closed);
    m->control->partition = NONE;
}

/* Return whether jobs of an entry may preempt those of another. */
static inline bool may_preempt(const Slurm *m, int32_t one, int32_t other) {
    return m->preempts[m->group[one] * m->preempts_columns + m->group[other]];
}

static inline bool stands_before(const State *s, const Slurm *m, int32_t one, int32_t other) {
    if (m->n_groups > 0) {
        if (may_preempt(m, one, other)) return true;
        if (may_preempt(m, other, one)) return false;
    }
    if (m->n_partitions == 1) {
        /* Entries are rows. */
        double first = s->jobs[one].priority, second = s->jobs[other].priority;
        return first > second || (first == second && one < other);
    }
    int32_t tier = m->partitions[partition_of(s, m, one)].tier;
    int32_t other_tier = m->partitions[partition_of(s, m, other)].tier;
    if (tier != other_tier) return tier > other_tier;
    double first = points_of(s, m, one), second = points_of(s, m, other);
    if (first != second) return first > second;
    int32_t row = row_of(s, m, one), other_row = row_of(s, m, other);
    return row < other_row || (row == other_row && one < other);
}

static void insert_entry(State *s, Slurm *m, int32_t entry) {
    int64_t lined = m->control->lined, low = 0, high = lined;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (stands_before(s, m, m->line[middle], entry)) low = middle + 1;
        else high = middle;
    }
    memmove(m->line + low + 1, m->line + low, (size_t)(lined - low) * sizeof *m->line);
    m->line[low] = entry;
    m->control->lined = lined + 1;
}

/* Insert a job into the line, once for each partition; equal priorities are ordered by submit time and id. */
EXPORT void insert(State *s, Slurm *m, int64_t row) {
    for (int32_t entry = (int32_t)row; entry != NONE; entry = next_entry(s, m, entry)) insert_entry(s, m, entry);
    s->tally->pending++;
}

/* Remove the entry at a place from the line; the caller updates the count of pending jobs. */
EXPORT void strike(State *s, Slurm *m, int64_t place) {
    (void)s;
    m->control->lined--;
    memmove(m->line + place, m->line + place + 1, (size_t)(m->control->lined - place) * sizeof *m->line);
}

/* Return whether a job of the line has started in another partition in the present pass. */
static inline bool has_started(const State *s, const Slurm *m, int32_t row) {
    return m->n_extras > 0 && s->jobs[row].phase != PENDING;
}

/* Remove the entries of jobs that started in another partition. */
static void clear_started(State *s, Slurm *m) {
    if (m->n_extras == 0) return;
    int64_t kept = 0;
    for (int64_t place = 0; place < m->control->lined; place++)
        if (s->jobs[row_of(s, m, m->line[place])].phase == PENDING) m->line[kept++] = m->line[place];
    m->control->lined = kept;
}

/* Sort a part of the line from `low` to before `high` by merging; equal entries do not exist. */
static void merge_sort(const State *s, const Slurm *m, int64_t low, int64_t high) {
    int32_t *line = m->line, *spare = m->spare;
    if (high - low < 12) {
        for (int64_t place = low + 1; place < high; place++) {
            int32_t entry = line[place];
            int64_t at = place;
            for (; at > low && stands_before(s, m, entry, line[at - 1]); at--) line[at] = line[at - 1];
            line[at] = entry;
        }
        return;
    }
    int64_t middle = (low + high) / 2, left = 0, right = middle, place = low;
    merge_sort(s, m, low, middle);
    merge_sort(s, m, middle, high);
    if (stands_before(s, m, line[middle - 1], line[middle])) return;
    memcpy(spare, line + low, (size_t)(middle - low) * sizeof *line);
    while (left < middle - low)
        if (right < high && stands_before(s, m, line[right], spare[left])) line[place++] = line[right++];
        else line[place++] = spare[left++];
}

/* Sort a part of the line of some length by merging, as glibc does: the order counts where it is not a total one. */
static void merge_halves(const State *s, const Slurm *m, int32_t *line, int64_t length) {
    if (length < 2) return;
    int64_t half = length / 2, left = 0, right = half, place = 0;
    merge_halves(s, m, line, half);
    merge_halves(s, m, line + half, length - half);
    while (left < half && right < length)
        m->spare[place++] = stands_before(s, m, line[left], line[right]) ? line[left++] : line[right++];
    while (left < half) m->spare[place++] = line[left++];
    memcpy(line, m->spare, (size_t)place * sizeof *line);
}

/* Build the line again from the order of submissions: with jobs that preempt others, its order is no total one. */
static void order_anew(const State *s, Slurm *m) {
    int64_t lined = m->control->lined, place = 0, entries = s->n_jobs + m->n_extras;
    if (m->n_groups == 0 || lined < 2) return;
    memset(m->spare, 0, (size_t)entries * sizeof *m->spare);
    for (int64_t at = 0; at < lined; at++) m->spare[m->line[at]] = 1;
    for (int32_t row = 0; place < lined; row++)
        for (int32_t entry = row; entry != NONE; entry = next_entry(s, m, entry))
            if (m->spare[entry]) m->line[place++] = entry;
    merge_halves(s, m, m->line, lined);
}

/* Sort the line by priority; return whether that changed it. */
EXPORT bool sort_line(State *s, Slurm *m) {
    int64_t lined = m->control->lined, place = 1;
    while (place < lined && stands_before(s, m, m->line[place - 1], m->line[place])) place++;
    if (place >= lined) return false;
    merge_sort(s, m, 0, lined);
    return true;
}
