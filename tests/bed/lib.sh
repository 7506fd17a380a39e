# Shared by the scripts of the beds; sourced, never run.
# shellcheck shell=bash

BED_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The folder of everything built; its name says from what. A user's own binaries make another folder than ours.
bed_cache() {
  local key
  key=$({ cat "$BED_HERE"/go/go.mod "$BED_HERE"/go/go.sum "$BED_HERE"/go/*/*.go "$BED_HERE"/coredns/go.mod "$BED_HERE"/coredns/go.sum \
    "$BED_HERE"/coredns/*.go "$BED_HERE/build"; echo "${KUBEBUILDER_ASSETS:-}"; } | sha256sum | cut -c1-16)
  echo "${EPO_BED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/egress-proxies-operator/bed}/$key"
}

# The folder of the node's images.
bed_images() { echo "$(bed_cache)/images-$(sha256sum "$BED_HERE/image" | cut -c1-16)"; }

bed_fail() { echo "bed: $*" >&2; exit 1; }

# --- daemons: the command line is kept, so that a test can stop one and start it again ---------------------------------
# Everything about a daemon is in FOLDER: FOLDER/pids/NAME ("PID START", the start telling it from a later process with its id),
# FOLDER/commands/NAME and FOLDER/log/NAME.log.

started_at() { # PID; empty when there is no such process
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # shellcheck disable=SC2086  # the fields behind the name, which may hold blanks itself
  set -- ${stat##*) }
  # A zombie has ended; only its parent has not asked yet.
  [ "$1" = Z ] || echo "${20}"
}

daemon() { # FOLDER NAME COMMAND...: keeps the command and starts it
  local folder=$1 name=$2
  shift 2
  mkdir -p "$folder"/{pids,commands,log}
  printf '%q ' "$@" >"$folder/commands/$name"
  daemon_start "$folder" "$name"
}

daemon_start() { # FOLDER NAME
  local folder=$1 name=$2 command
  daemon_runs "$folder" "$name" && return
  eval "command=($(cat "$folder/commands/$name"))"
  setsid "${command[@]}" >>"$folder/log/$name.log" 2>&1 </dev/null &
  echo "$! $(started_at $!)" >"$folder/pids/$name"
}

daemon_runs() { # FOLDER NAME
  local pid start
  read -r pid start 2>/dev/null <"$1/pids/$2" || return 1
  [ -n "$start" ] && [ "$(started_at "$pid")" = "$start" ]
}

daemon_end() { # FOLDER NAME SIGNAL: returns when it is gone; what does not go within 10 s is killed
  local pid
  daemon_runs "$1" "$2" || { rm -f "$1/pids/$2"; return 0; }
  read -r pid _ <"$1/pids/$2"
  kill "-$3" "$pid" 2>/dev/null || true
  for _ in $(seq 200); do
    daemon_runs "$1" "$2" || { rm -f "$1/pids/$2"; return 0; }
    sleep 0.05
  done
  kill -KILL "$pid" 2>/dev/null || true
  for _ in $(seq 100); do
    daemon_runs "$1" "$2" || { rm -f "$1/pids/$2"; return 0; }
    sleep 0.05
  done
  bed_fail "$2 (process $pid) does not end"
}

# until_ok WHAT COMMAND...: asks every 100 ms for a minute
until_ok() {
  local what=$1
  shift
  for _ in $(seq 600); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  bed_fail "$what: not within a minute"
}

# --- certificates and kubeconfigs, in the current folder -----------------------------------------------------------------
new_ca() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=bed-ca \
    -keyout ca.key -out ca.crt 2>/dev/null
  openssl genrsa -out sa.key 2048 2>/dev/null
}

certificate() { # NAME SUBJECT USAGE [SUBJECT-ALTERNATIVE-NAMES]
  [ -e "$1.crt" ] && return
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 8)" -days 30 -out "$1.crt" \
    -extfile <(echo "extendedKeyUsage=$3"; [ -z "${4:-}" ] || echo "subjectAltName=$4") 2>/dev/null
  rm -f "$1.csr"
}

kubeconfig_of() { # NAME SERVER USER-LINES: prints it
  cat <<CONFIG
apiVersion: v1
kind: Config
current-context: bed
clusters: [{name: bed, cluster: {server: "$2", certificate-authority-data: $(base64 -w0 ca.crt)}}]
contexts: [{name: bed, context: {cluster: bed, user: $1}}]
users: [{name: $1, user: {$3}}]
CONFIG
}

kubeconfig_by_certificate() { # NAME SERVER: prints it
  kubeconfig_of "$1" "$2" "client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")"
}
