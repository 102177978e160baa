#!/bin/sh
# Runs the README's test command on a new Debian 12: a system by debootstrap that has only what `./rewind` installs, and
# a clone of the last commit. It needs root and 4 GiB. Usage: bare_debian.sh REPOSITORY [COMMAND]
set -eu
repository=$1
command=${2:-./rewind test}
folder=$(mktemp -d)
end() {
  for place in proc dev; do umount -l "$folder/system/$place" 2> /dev/null || true; done
  # Nothing is deleted through a mount that could not be removed.
  rm -rf --one-file-system "$folder"
}
trap end EXIT
trap 'exit 1' INT TERM

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' 2> /dev/null | head -n 1)
debootstrap --variant=minbase --include=ca-certificates bookworm "$folder/system" "${mirror:-http://deb.debian.org/debian}" \
  > "$folder/log" 2>&1 || { tail -n 20 "$folder/log" && exit 1; }
# The system gets packages and resolves names as this one does.
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/apt.conf /etc/apt/auth.conf.d \
  /etc/resolv.conf /etc/hosts /usr/share/keyrings /usr/local/share/ca-certificates /etc/ssl/certs; do
  if [ -e "$file" ]; then
    mkdir -p "$folder/system${file%/*}"
    cp -rL "$file" "$folder/system${file%/*}/" 2> /dev/null || true
  fi
done
git clone --quiet "$repository" "$folder/system/rewind"
mount -t proc proc "$folder/system/proc"
mount --rbind /dev "$folder/system/dev"
mount --make-rslave "$folder/system/dev"
chroot "$folder/system" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LANG=C.UTF-8 \
  ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} sh -c "cd /rewind && $command"
