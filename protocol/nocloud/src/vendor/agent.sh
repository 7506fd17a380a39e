#!/bin/sh
# Installs and starts the QEMU guest agent, which tells the hypervisor this machine's addresses. Safe to run again.
# What it prints goes to cloud-init's log.

have() { command -v "$1" >/dev/null 2>&1; }
say() { echo "guest agent: $*"; }

install_agent() {
    if have apt-get; then
        # At first boot another apt often holds the lock, and there are no package lists yet.
        apt-get -o DPkg::Lock::Timeout=300 update &&
            DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends qemu-guest-agent
    elif have dnf; then
        dnf install -y qemu-guest-agent
    elif have yum; then
        yum install -y qemu-guest-agent
    elif have zypper; then
        zypper --non-interactive install qemu-guest-agent
    elif have apk; then
        apk add qemu-guest-agent
    else
        say "none of apt-get, dnf, yum, zypper and apk is here"
        return 1
    fi
}

try=1
while ! have qemu-ga; do
    install_agent && break
    if [ "$try" -ge 3 ]; then
        say "could not be installed"
        break
    fi
    say "try $try failed, the next is in 20 seconds"
    try=$((try + 1))
    sleep 20
done

if have systemctl; then
    # Some distributions start it by a device and have nothing to enable.
    systemctl enable qemu-guest-agent || say "cannot be enabled"
    systemctl start qemu-guest-agent
elif have rc-update && have rc-service; then
    rc-update add qemu-guest-agent default
    rc-service qemu-guest-agent start
else
    say "neither systemctl nor rc-service is here: not started"
fi
exit 0
