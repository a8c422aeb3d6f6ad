forget_unit
# What was changed in the cluster stands in the journal, so a removal leaves it and only a purge removes it.
if [ "$1" = purge ]; then
    rm -rf /var/lib/sadvise /etc/sadvise /run/sadvise
fi
