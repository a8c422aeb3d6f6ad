/* Where backfill of later releases expects a job: it looks for a start slot by slot.
 *
 * A slot lasts until a node of the job opens after a reservation. An estimate begins with what is free by the slot, and
 * counts no end beyond it.
 */

/* Return the last end, up to a place of the departures, of a job on a picked node. */
static double last_end_there(const State *s, const Slurm *m, int64_t place) {
    for (; place >= 0; place--)
        for (int64_t at = 0; at < m->departures[place].span; at++)
            for (int64_t picked = 0; picked < s->tally->picked; picked++)
                if (s->pick_nodes[picked] == s->held_nodes[m->departures[place].pool + at]) return m->departures[place].end_time;
    return -INFINITY;
}

/* Return when a job fits the open nodes from the instant of a search to the end of its slot, and pick its nodes.
 *
 * Jobs leave group by group. The latest releases take the last end on the picked nodes, not that of the group.
 */
static double first_group_of_slot(State *s, Slurm *m, int64_t row, Search *search, double now, double end) {
    const Departure *departures = m->departures;
    double begin = search->at, ready = time_of(m, search->freed_by[m->ready[search->wanted - 1]], now);
    double gone_time = floor(begin) + (m->control->by_own_ends ? 1.0 : 0.0);
    int64_t gone = first_after(m, 0, nextafter(gone_time, -INFINITY)), count = most_of(gone, first_after(m, 0, end));
    if (ready > end) return INFINITY;
    if (ready <= begin && fits_freed(s, m, row, search, gone - 1)) return begin;
    int64_t place = next_departure(s, m, search, gone);
    if (place >= count) return INFINITY;
    double aligned = (floor(departures[place].end_time / GROUP_S) + 1.0) * GROUP_S;
    for (double window = GROUP_S; place < count;) {
        int64_t last = group_end(s, m, search, place, aligned + window, count), next = last + 1;
        double when = most(begin, departures[last].end_time);
        if (ready <= when && fits_freed(s, m, row, search, last))
            return m->control->by_own_ends ? most(begin, last_end_there(s, m, last)) : when;
        place = next_departure(s, m, search, next);
        do window *= 2.0;
        while (next < count && departures[next].end_time > aligned + window);
    }
    return INFINITY;
}

/* Keep an instant among the three earliest, which are sorted and differ. */
static void keep_earliest(double earliest_three[3], double added) {
    for (int64_t place = 0; place < 3 && added != earliest_three[place]; place++)
        if (added < earliest_three[place]) {
            double later = earliest_three[place];
            earliest_three[place] = added;
            added = later;
        }
}

/* Find the first three changes of reservations after an instant, node by node. */
static void find_changes(const State *s, const Slurm *m, double after, double changes[3]) {
    for (int64_t node = 0; node < s->n_nodes; node++) {
        double until = -INFINITY;
        for (int32_t item = m->first[node]; item != NONE; item = m->reservations[item].next) {
            const Reservation *reservation = &m->reservations[item];
            if (reservation->booking != NONE) continue;
            if (reservation->start_time > until) {
                if (until > after) keep_earliest(changes, until);
                if (reservation->start_time > after) keep_earliest(changes, reservation->start_time);
            }
            until = most(until, reservation->end_time);
        }
        if (until > after) keep_earliest(changes, until);
    }
}

/* Find the same from the slots. */
static void find_changes_of_slots(const Slurm *m, double after, double changes[3]) {
    int64_t count = m->control->slots;
    int64_t opening = place_in(m->slots, count, after, true), shutting = place_in(m->shuts, count, after, true);
    for (int64_t found = 0; found < 3 && (opening < count || shutting < count);) {
        bool shuts = opening == count || (shutting < count && m->shuts[shutting] < m->slots[opening]);
        double change = shuts ? m->shuts[shutting++] : m->slots[opening++];
        if (found == 0 || change > changes[found - 1]) changes[found++] = change;
    }
}

/* Return the end of the slot that begins at an instant: when a node of the job opens next; infinity if none does.
 *
 * slurmctld looks no further than the first change of reservations after the end of the job. Where no node opens by
 * then, the slot ends with the second change from that one on.
 */
static double slot_end(const State *s, const Slurm *m, const Job *job, double at, double limit_s) {
    double opening = next_slot(s, m, job, at), changes[3] = {INFINITY, INFINITY, INFINITY};
    /* No change counts that comes before the end of the job. */
    if (opening <= at + limit_s) return opening;
    if (s->n_bookings > 0) find_changes(s, m, at + limit_s, changes);
    else find_changes_of_slots(m, at + limit_s, changes);
    return opening <= changes[1] ? opening : changes[2];
}

/* Return whether enough nodes that open before an instant have enough free by then. */
static bool suffices_before(Slurm *m, const Search *search, double instant) {
    int64_t found = 0;
    for (int64_t place = 0; place < search->nodes && found < search->wanted; place++) {
        int32_t node = search->order[place];
        if (search->free_time[node] > instant) return false;
        found += opening(m, search, node) < instant;
    }
    return found == search->wanted;
}

/* Return the start that later releases expect for a job, and pick its nodes; infinity if none is found. */
static double earliest_by_slot(State *s, Slurm *m, int64_t row, Search *search, double now) {
    const Job *job = search->job;
    int64_t fewest = search->fewest;
    double last = now + m->control->bf_window_s, limit_s = search->limit_s;
    for (double at = now; at <= last;) {
        search->at = at;
        /* Slots that a job could not start in can be skipped where each ends with an opening. */
        double chance = next_chance(s, m, search);
        if (search->soonest > last) return INFINITY;
        if (at < chance && chance <= at + limit_s) {
            at = chance;
            continue;
        }
        double begin = INFINITY, end = slot_end(s, m, job, at, limit_s);
        if (end < search->soonest || (end == search->soonest && !suffices_before(m, search, end))) {
            at = end;
            while (at <= last && (end = slot_end(s, m, job, at, limit_s)) < search->soonest) at = end;
            continue;
        }
        search->examined = search->found = 0;
        find_ready(m, search, fewest, INT64_MIN);
        if (search->found >= fewest) begin = first_group_of_slot(s, m, row, search, now, end);
        if (begin == INFINITY) {
            at = end;
            continue;
        }
        if (begin > last) return INFINITY;
        if (begin == at || !meets_reservation(s, m, job, on_slot(m, begin), end_slot(m, begin, limit_s))) return begin;
        at = begin;
    }
    return INFINITY;
}
