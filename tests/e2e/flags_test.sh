#!/usr/bin/env bash
# Flags out of range are refused at start, with status 2 and their limits: flags_test.sh WARPCALLD
# $WARPCALL_TEST_BIN_DIR has another WARPCALLD, as for every test of programs.
set -u
server=${WARPCALL_TEST_BIN_DIR:+$WARPCALL_TEST_BIN_DIR/warpcalld}
server=${server:-$1}
failures=0

# refused FLAG TEXT...: exit status 2, and stderr contains each TEXT.
refused() {
  local flag=$1 output status text
  shift
  output=$("$server" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 "$flag" 2>&1 >/dev/null)
  status=$?
  [ "$status" = 2 ] || { echo "$flag: exit status $status, wanted 2: $output"; failures=1; }
  for text in "$@"; do
    [[ $output == *"$text"* ]] || { echo "$flag: \"$text\" missing from: $output"; failures=1; }
  done
}

refused --lanes_per_device=0 lanes_per_device 0 1 64
refused --lanes_per_device=65 65 64
refused --busy_poll_us=-1 busy_poll_us 0 100000
refused --busy_poll_us=100001 100001 100000
refused --pollers=17 pollers 0 16
refused --staging_mib=0 staging_mib 1
refused --max_message_mib=2048 max_message_mib 2047
refused --queue_limit=0 queue_limit 1
refused --queue_mib=-1 queue_mib
refused --reception_mib=63 reception_mib 64
refused --reception_mib=511 511 max_message_mib 512
refused --staging_mib=511 511 max_message_mib 512
refused --inspect=maybe inspect on local off
refused --inspect_seconds=0.5 inspect_seconds 1 86400
refused --inspect_queue=0 inspect_queue 1 1024
refused --log_format=xml log_format logfmt json
refused --flagfile=/no/such/file '--flagfile: /no/such/file: No such file'
refused --flagfile=/dev/zero '/dev/zero: is a character device, not a regular file'
refused --lame_duck_seconds=-1 lame_duck_seconds 0 3600
refused --drain_seconds=x drain_seconds
refused --max_run_seconds=0 max_run_seconds 0.1 86400
refused --max_run_seconds=86401 max_run_seconds 86401 86400
refused --max_connection_age_seconds=-1 max_connection_age_seconds 0 86400
refused --send_seconds=0 send_seconds 0.1 86400
refused --queue_seconds=NaN queue_seconds 0.001 86400
refused --self_test=slow self_test quick full off
refused --log_level=loud loud debug info warning error
refused --listen=nonsense nonsense HOST:PORT
refused --metrics_listen=127.0.0.1:70000 70000 65535
refused --gpus_min=-1 gpus_min 0 64
refused --gpus_min=65 65 64
refused --no_such_flag no_such_flag

output=$("$server" --listen=0.0.0.0:0 --metrics_listen=127.0.0.1:0 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *--listen=0.0.0.0:0*--token_file*--insecure* ]] || { echo "--listen=0.0.0.0:0: $output"; failures=1; }
output=$("$server" --devices=tpu:0 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *tpu:0*cpu* ]] || { echo "--devices=tpu:0: $output"; failures=1; }
output=$("$server" --devices=cpu --push=cuda:9 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *'there is no device "cuda:9"; available: cpu'* ]] || { echo "--push=cuda:9: $output"; failures=1; }
output=$("$server" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 --compile_cache=/proc/self/task 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *compile_cache*'"/proc/self/task"'*made* ]] || { echo "--compile_cache: $output"; failures=1; }
output=$("$server" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 --tuning_cache=/nowhere/tuning 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *tuning_cache*'"/nowhere/tuning"'*'No such file or directory'* ]] || { echo "--tuning_cache: $output"; failures=1; }
# checked STATUS TEXT FLAG...: --check_flags ends with STATUS, says TEXT and leaves no file behind.
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
checked() {
  local wanted=$1 text=$2 output status
  shift 2
  output=$(cd "$folder" && timeout 60 "$server" --check_flags "$@" 2>&1)
  status=$?
  [[ $status = "$wanted" && $output == *"$text"* ]] ||
    { echo "--check_flags $*: exit status $status, wanted $wanted and \"$text\": $output"; failures=1; }
  [[ -z $(ls "$folder") ]] || { echo "--check_flags $* made files: $(ls "$folder")"; failures=1; }
}
server=$(realpath "$server")
checked 0 'are valid'
# The machine that checks need not be the one that serves.
checked 0 'are valid' --devices=cuda:7,cpu
checked 0 'are valid' "--compile_cache=$folder/kept/" "--tuning_cache=$folder/kept/tuning"
checked 0 'are valid' "--compile_cache=kept"
checked 2 'staging_mib: 511' --staging_mib=511
checked 2 'No such file' --tuning_cache=nowhere/tuning
checked 2 'it can'\''t be made' --compile_cache=/nowhere/kept
checked 2 'No such file' "--tuning_cache=$folder/kept/tuning" "--compile_cache=$folder"
checked 0 'are valid' "--cuda_include=$folder"
checked 2 '/nowhere/include' --cuda_include=/nowhere/include
checked 2 --token_file --listen=0.0.0.0:8470
checked 2 '"tpu:0" is not a device' --devices=cpu,tpu:0
checked 2 '"cuda:" is not a device' --devices=cuda:
checked 2 '--push: "yes" is not a device; give on, off' --push=yes
checked 2 '--push: "" is not a device' --push=,
checked 0 'are valid' --push=cuda:0,cuda:1
checked 2 otlp_endpoint --otlp_endpoint=nowhere
checked 2 'tls_cert: /no/cert' --tls_cert=/no/cert --tls_key=/no/key
checked 2 'token_file: /no/tokens' --token_file=/no/tokens
checked 2 'policy_file: /no/policies' --policy_file=/no/policies
# Warnings of a start are those of a check.
files=$(mktemp -d)
trap 'rm -r "$folder" "$files"' EXIT
printf 'alice short\nbob 0123456789abcdef\n' >"$files/tokens"
echo '{"principals": {"alice": {"kernels": ["gellu"]}, "carol": {}}}' >"$files/policies"
for text in 'msg="tokens can be guessed"' 'the policy of alice names kernel gellu, which this server does not have; did you mean gelu?' \
  'the policy of carol applies to nobody: no token has that name' 'bob has a token and may do nothing' 'are valid'; do
  checked 0 "$text" "--token_file=$files/tokens" "--policy_file=$files/policies"
done
checked 0 'the policies of 2 principals apply to nobody' "--policy_file=$files/policies"
help=$("$server" --help) || { echo "--help failed"; failures=1; }
fractions=$(grep -oP '^ *--\K\w+(?= FLOAT)' <<<"$help")
[ "$(wc -w <<<"$fractions")" -ge 6 ] || { echo "--help has few flags with fractions: $fractions"; failures=1; }
for flag in $fractions; do refused "--$flag=nan" "$flag" nan 'not in range'; done
for flag in listen metrics_listen devices gpus_min lanes_per_device busy_poll_us pollers staging_mib max_message_mib queue_limit \
  queue_mib reception_mib resident_mib resident_ttl_seconds resident_ttl_seconds_max lame_duck_seconds drain_seconds max_run_seconds max_connection_age_seconds send_seconds self_test compile_cache cuda_include tuning_cache \
  check check_flags log_level log_format flagfile inspect inspect_seconds inspect_queue push push_run_seconds allow_shared_memory \
  otlp_endpoint otlp_sample_ratio load_reports tls_cert tls_key tls_client_ca token_file policy_file insecure; do
  [[ $help == *"--$flag"* ]] || { echo "--help lacks --$flag"; failures=1; }
done
exit $failures
