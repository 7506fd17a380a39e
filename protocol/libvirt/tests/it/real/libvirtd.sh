#!/bin/bash
# The first process of namespaces that hold one libvirtd: its files are below $1, its socket is $1/sock/libvirt-sock.
# It reaps the QEMUs that libvirtd probes with, and takes everything along when it is killed.
set -e
dir=$1
ip link set lo up
for part in lib cache log; do
    mkdir -p "$dir/$part" "/var/$part/libvirt"
    mount --bind "$dir/$part" "/var/$part/libvirt"
done
cp -a /etc/libvirt "$dir/etc"
mount --bind "$dir/etc" /etc/libvirt
rm -rf /etc/libvirt/qemu/*.xml /etc/libvirt/storage /etc/libvirt/qemu/networks/autostart
mkdir -p /var/lib/libvirt/qemu /var/log/libvirt/qemu "$dir/sock"
chown libvirt-qemu:kvm /var/lib/libvirt/qemu
mkdir -p /run/libvirt
mount -t tmpfs -o mode=755 tmpfs /run/libvirt
# A device that root can open and QEMU's user cannot makes libvirt probe QEMU anew at each call.
if [ -e /dev/kvm ]; then
    : >"$dir/nokvm"
    chmod 000 "$dir/nokvm"
    mount --bind "$dir/nokvm" /dev/kvm
fi
echo 'namespaces = []' >>/etc/libvirt/qemu.conf
printf 'unix_sock_dir = "%s"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n' "$dir/sock" >/etc/libvirt/libvirtd.conf
virtlogd -d -p /run/libvirt/virtlogd.pid
libvirtd -d -p "$dir/libvirtd.pid"
while :; do sleep 3600 & wait $! || true; done
