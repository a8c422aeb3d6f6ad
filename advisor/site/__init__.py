"""What the daemon and the commands share: the pause, the breakers, the status, the socket and the rights at a site."""
