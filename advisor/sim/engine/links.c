/* Bandwidths of gangs on shared links.
 *
 * The bandwidth of a gang is what its slowest link gives to one of its nodes. Jobs divide the links inside a node (if
 * shared) and a NIC by pressure, an uplink evenly. Uplinks that together carry more than the spine are reduced in
 * proportion.
 */

static void count_crossing(State *s, int64_t row, int64_t step) {
    Leaf *leaf = &s->leaves[row];
    if (leaf->crossing == 0) s->tally->loaded += leaf->nodes;
    leaf->crossing += (int32_t)step;
    if (leaf->crossing == 0) s->tally->loaded -= leaf->nodes;
}

/* Add a gang to the senders on its nodes (`step` 1), or remove it from them (-1). */
static void count_sender(State *s, const int32_t *nodes, int64_t count, double pressure, bool crosses, int64_t step) {
    int32_t before = NONE;
    for (int64_t place = 0; place < count; place++) {
        Node *node = &s->nodes[nodes[place]];
        node->inner_pressure = most(0.0, node->inner_pressure + (double)step * pressure);
        if (count == 1) return;
        node->pressure = most(0.0, node->pressure + (double)step * pressure);
        /* The nodes of a leaf are adjacent in the allocation of a job. */
        if (crosses && node->leaf != before) {
            before = node->leaf;
            count_crossing(s, before, step);
        }
    }
}

/* Return the share that the spine carries of the traffic of leaves with `loaded` nodes, at most 1. */
static double spine_ratio(State *s, int64_t loaded) {
    return least(1.0, (double)s->n_nodes / s->rules->spine_oversubscription / (double)most_of(1, loaded));
}

/* Return the bandwidth of each of `nodes` on a gang's slowest link, beside the jobs there now.
 *
 * Nodes of a leaf are adjacent. A gang that runs there has added `own_pressure` to its nodes, and `joining` is 0; for a
 * placement that is only considered, these are 0 and 1.
 */
static double slowest_gbps(State *s, const int32_t *nodes, int64_t count, double own_pressure, bool crosses,
                           int64_t joining) {
    const Rules *rules = s->rules;
    double slowest = rules->node_gbps, uplink = INFINITY;
    int64_t loaded = s->tally->loaded, here = 0;
    if (count > 1) slowest = least(slowest, rules->nic_gbps);
    for (int64_t place = 0; place < count; place++) {
        const Node *node = &s->nodes[nodes[place]];
        if (rules->node_shared)
            slowest = least(slowest, contended_gbps(rules->node_gbps, most(0.0, node->inner_pressure - own_pressure)));
        if (count > 1)
            slowest = least(slowest, contended_gbps(rules->nic_gbps, most(0.0, node->pressure - own_pressure)));
        if (!crosses) continue;
        here++;
        if (place + 1 == count || s->nodes[nodes[place + 1]].leaf != node->leaf) {
            const Leaf *leaf = &s->leaves[node->leaf];
            if (leaf->crossing == 0) loaded += leaf->nodes;
            double carried = leaf->nodes * rules->nic_gbps / rules->oversubscription;
            uplink = least(uplink, carried / (double)most_of(1, leaf->crossing + joining) / (double)here);
            here = 0;
        }
    }
    if (crosses) slowest = least(slowest, uplink * spine_ratio(s, loaded));
    return slowest;
}

/* Return the bandwidth of a gang alone on its best placement, on `nodes` nodes. */
EXPORT double best_gbps(State *s, int64_t nodes) {
    const Rules *rules = s->rules;
    if (nodes <= 1) return rules->node_gbps;
    double best = rules->nic_gbps;
    /* Beyond one leaf a gang alone has the uplinks to itself, as far as its leaves' nodes can load them. */
    if (nodes > rules->leaf_nodes) {
        int64_t loaded = least_of(s->n_nodes, parts_of(nodes, rules->leaf_nodes) * rules->leaf_nodes);
        best = best / rules->oversubscription * spine_ratio(s, loaded);
    }
    return least(best, rules->node_gbps);
}
