#!/bin/sh
# The programs of a node's root that the driver needs, on a directory that only looks like a node. They are links to this
# file, and each does to the tree what the real one makes the kernel do.
set -u
name=$(basename "$0")
root=$(cd "$(dirname "$0")/../.." && pwd)
fake=$root/fake
kernel=$(cat "$root/proc/sys/kernel/osrelease")
sys=$root/sys
printf '%s\n' "$name $*" >>"$fake/calls"
number=$(wc -l <"$fake/calls")

die() {
	echo "$1" >&2
	exit 1
}

# A test says which calls fail, and at which call the installer is killed.
if [ -e "$fake/fail" ] && printf '%s\n' "$number $name $*" | grep -Eq -f "$fake/fail"; then
	die "$name: made to fail"
fi
if [ -e "$fake/kill" ] && printf '%s\n' "$number $name $*" | grep -Eq -f "$fake/kill"; then
	kill -9 $PPID
	exit 1
fi

module_file() { sed -n "s,^\([^:]*/$1\.ko\):.*,\1,p" "$root/lib/modules/$kernel/modules.dep" 2>/dev/null | tail -n1; }

options_of() { cat "$root"/usr/lib/modprobe.d/*.conf "$root"/etc/modprobe.d/*.conf 2>/dev/null | sed -n "s/^options $1 //p" | tr '\n' ' '; }

# Counts who uses a module: modules, and what a test adds.
count_users() {
	[ -d "$sys/module/$1" ] || return 0
	users=$(ls "$sys/module/$1/holders" | wc -l)
	more=$(cat "$fake/users-$1" 2>/dev/null || echo 0)
	echo $((users + more)) >"$sys/module/$1/refcnt"
}

ids_of() {
	case $1 in
	hisi_hpre) echo 0xa258 0xa259 ;;
	hisi_sec2) echo 0xa255 0xa256 ;;
	hisi_zip) echo 0xa250 0xa251 ;;
	esac
}

insert() {
	[ -d "$sys/module/$1" ] && return 0
	file=$(module_file "$1")
	[ -n "$file" ] || die "modprobe: FATAL: Module $1 not found in directory /lib/modules/$kernel"
	module=$1
	shift
	mode=0
	queues=64
	for option in $(options_of "$module") "$@"; do
		case $option in
		uacce_mode=*) mode=${option#*=} ;;
		pf_q_num=*) queues=${option#*=} ;;
		esac
	done
	if [ "$mode" = 2 ] && grep -q in-tree "$root/lib/modules/$kernel/$file"; then
		die "modprobe: ERROR: could not insert '$module': Invalid argument"
	fi
	case $module in
	uacce) mkdir -p "$sys/class/uacce" ;;
	# In a shell of its own, which leaves the variables of this one alone.
	hisi_qm) (insert uacce) || exit 1 ;;
	*) (insert hisi_qm) || exit 1 ;;
	esac
	mkdir -p "$sys/module/$module/holders" "$sys/module/$module/parameters"
	case $module in
	uacce) ;;
	hisi_qm) : >"$sys/module/uacce/holders/hisi_qm" ;;
	*)
		: >"$sys/module/hisi_qm/holders/$module"
		echo "$mode" >"$sys/module/$module/parameters/uacce_mode"
		echo "$queues" >"$sys/module/$module/parameters/pf_q_num"
		[ -e "$fake/no-probe" ] || probe "$module" "$mode" "$queues"
		;;
	esac
	for each in uacce hisi_qm "$module"; do count_users "$each"; done
}

# Binds functions and makes their entries and nodes, numbered by one counter over all engines.
probe() {
	mkdir -p "$sys/bus/pci/drivers/$1"
	for function in "$sys"/bus/pci/devices/*; do
		address=$(basename "$function")
		case " $(ids_of "$1") " in *" $(cat "$function/device") "*) ;; *) continue ;; esac
		[ -e "$function/driver" ] || [ -L "$function/driver" ] && continue
		ln -s "../../../../bus/pci/drivers/$1" "$function/driver"
		[ "$2" = 0 ] && continue
		count=$(cat "$fake/counter" 2>/dev/null || echo 0)
		echo $((count + 1)) >"$fake/counter"
		entry=$1-$count
		mkdir -p "$function/uacce/$entry"
		echo hisi_qm_v2 >"$function/uacce/$entry/api"
		echo "$3" >"$function/uacce/$entry/available_instances"
		ln -s "../../bus/pci/devices/$address/uacce/$entry" "$sys/class/uacce/$entry"
		[ -e "$fake/no-nodes" ] && continue
		: >"$root/dev/$entry"
		chmod 0600 "$root/dev/$entry"
	done
}

take_out() {
	[ -d "$sys/module/$1" ] || die "rmmod: ERROR: Module $1 is not currently loaded"
	count_users "$1"
	[ "$(cat "$sys/module/$1/refcnt")" = 0 ] || die "rmmod: ERROR: Module $1 is in use by: $(ls "$sys/module/$1/holders")"
	for function in "$sys"/bus/pci/devices/*; do
		[ "$(basename "$(readlink "$function/driver")")" = "$1" ] || continue
		rm -rf "$function/driver" "$function/uacce"
		# Its virtual functions go with a driver.
		[ -e "$function/sriov_numvfs" ] && printf 0 >"$function/sriov_numvfs"
	done
	rm -rf "$sys/class/uacce/$1"-* "$root/dev/$1"-* "$sys/module/$1"
	for other in hisi_qm uacce; do
		rm -f "$sys/module/$other/holders/$1"
		count_users "$other"
	done
}

case $name in
modprobe) insert "$@" ;;
rmmod) take_out "$1" ;;
depmod)
	[ -d "$root/lib/modules/$2" ] || die "depmod: ERROR: could not open directory /lib/modules/$2: No such file or directory"
	cd "$root/lib/modules/$2"
	# A module in extra outdoes one of the kernel's own.
	for module in uacce hisi_qm hisi_hpre hisi_sec2 hisi_zip; do
		for place in extra kernel; do
			[ -e "$place/$module.ko" ] && echo "$place/$module.ko:" && break
		done
	done >modules.dep
	:
	;;
udevadm) ;;
rpm)
	case $1 in
	-qp) head -n1 "$root$4" ;;
	-q) grep -Eq "(^| )$2( |\$)" "$fake/packages" 2>/dev/null || die "package $2 is not installed" ;;
	esac
	;;
dnf)
	verb=$1
	shift 2
	[ -e "$fake/repository" ] && die "$(cat "$fake/repository")"
	for argument in "$@"; do
		if [ "$verb" = remove ]; then
			full=$(sed -n "s/^$argument //p" "$fake/packages")
			sed -i "/^$argument /d" "$fake/packages"
			for module in "$root"/lib/modules/*/extra/*.ko; do
				if grep -q "^$full\$" "$module" 2>/dev/null; then rm "$module"; fi
			done
			continue
		fi
		package=$root$argument
		full=$(sed -n '1s/.* //p' "$package")
		short=$(sed -n '1s/ .*//p' "$package")
		sed -i "/^$short /d" "$fake/packages"
		head -n1 "$package" >>"$fake/packages"
		mkdir -p "$root/lib/modules/$kernel/extra"
		for module in $(sed 1d "$package"); do
			echo "$full" >"$root/lib/modules/$kernel/extra/$module.ko"
		done
	done
	;;
esac
