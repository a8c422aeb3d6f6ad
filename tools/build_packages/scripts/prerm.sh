case "$1" in
    upgrade) stop_for_upgrade ;;
    remove | deconfigure) stop_for_good ;;
esac
