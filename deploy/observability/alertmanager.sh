#!/bin/sh
# Starts Alertmanager with what these variables say, since its file cannot read them:
#
#   ALERT_WEBHOOK_URL  a Slack-compatible webhook, also of Mattermost, Rocket.Chat, or
#                      Discord (with /slack at its end)
#   ALERT_EMAIL_URL    smtp://USER:PASSWORD@HOST:587?from=ADDRESS&to=ADDRESS, with
#                      percent-encoding; tls=off for a server without TLS
#
# Without both, alerts are only shown by Prometheus. More arguments go to Alertmanager.
set -eu
umask 077
dir=${ALERTMANAGER_DIR:-/tmp}
webhook=${ALERT_WEBHOOK_URL:-}
mail=${ALERT_EMAIL_URL:-}

# Nothing of a value that is wrong is printed: it has a secret.
wrong() { echo "$1: expected $2" >&2; exit 78; }
one_line() { case "$2" in *"
"*) wrong "$1" "one line" ;; esac }

# Percent-encoding, by the octal numbers that each shell's printf has.
decode() {
  left=$1
  while :; do
    before=${left%%"%"[0-9A-Fa-f][0-9A-Fa-f]*}
    printf %s "$before"
    [ "$before" != "$left" ] || return 0
    left=${left#"$before%"} hex=${left%"${left#??}"} left=${left#??}
    # shellcheck disable=SC2059
    printf "\\$(printf %03o "0x$hex")"
  done
}
# In a single-quoted text of YAML only the quote itself is special.
quote() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }
parameter() { printf %s "$query" | tr '&' '\n' | sed -n "s/^$1=//p" | head -n 1; }

print_slack() {
  cat <<YAML
    slack_configs:
      - api_url_file: $(quote "$dir/webhook_url")
YAML
  cat <<'YAML'
        send_resolved: true
        title: '{{ template "title" . }}'
        title_link: '{{ (index .Alerts 0).Annotations.runbook_url }}'
        color: '{{ if eq .Status "firing" }}{{ if eq .CommonLabels.severity "page" }}danger{{ else }}warning{{ end }}{{ else }}good{{ end }}'
        text: '{{ template "lines" . }}'
        footer: '{{ .CommonLabels.console }}'
YAML
}

print_mail() {
  tls=true
  [ "$(parameter tls)" != off ] || tls=false
  cat <<YAML
    email_configs:
      - to: $(quote "$(decode "$to")")
        from: $(quote "$(decode "$from")")
        smarthost: $(quote "$server")
        require_tls: $tls
        send_resolved: true
        headers: { subject: '{{ template "title" . }}' }
        text: '{{ template "lines" . }}'
        html: ''
YAML
  [ -z "$user" ] || cat <<YAML
        auth_username: $(quote "$(decode "$user")")
        auth_password: $(quote "$(decode "$password")")
YAML
}

if [ -n "$webhook" ]; then
  one_line ALERT_WEBHOOK_URL "$webhook"
  case "$webhook" in
    http://?* | https://?*) printf %s "$webhook" >"$dir/webhook_url" ;;
    *) wrong ALERT_WEBHOOK_URL "a URL such as https://hooks.example.com/services/…" ;;
  esac
fi
if [ -n "$mail" ]; then
  one_line ALERT_EMAIL_URL "$mail"
  form="smtp://USER:PASSWORD@HOST:587?from=ADDRESS&to=ADDRESS"
  case "$mail" in smtp://*:*\?*) ;; *) wrong ALERT_EMAIL_URL "$form" ;; esac
  rest=${mail#smtp://} query=${mail#*\?} user="" password=""
  server=${rest%%\?*} server=${server%/}
  case "$server" in *@*)
    login=${server%@*} server=${server##*@}
    user=${login%%:*} password=${login#*:} ;;
  esac
  from=$(parameter from) to=$(parameter to)
  case "$server" in ?*:[0-9]*) ;; *) wrong ALERT_EMAIL_URL "$form" ;; esac
  [ -n "$from" ] && [ -n "$to" ] || wrong ALERT_EMAIL_URL "$form"
fi

# A webhook that hangs is given up after `group_interval` and then tried again; mail
# does not wait for it.
{
  cat <<YAML
route:
  receiver: operators
  group_by: [alertname]
  group_wait: ${ALERT_GROUP_WAIT:-30s}
  group_interval: ${ALERT_GROUP_INTERVAL:-1m}
  repeat_interval: 4h
  routes:
    - receiver: operators
      matchers: ['severity="ticket"']
      repeat_interval: 24h
templates: [messages.tmpl]
receivers:
  - name: operators
YAML
  [ -z "$webhook" ] || print_slack
  [ -z "$mail" ] || print_mail
} >"$dir/alertmanager.yml"
cat >"$dir/messages.tmpl" <<'TEMPLATE'
{{ define "title" }}{{ if eq .Status "firing" }}{{ .CommonLabels.severity | toUpper }}{{ else }}RESOLVED{{ end }}: {{ .CommonLabels.alertname }}{{ end }}
{{ define "lines" }}{{ range .Alerts }}{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ .Annotations.summary }}
{{ end }}
What to do: {{ (index .Alerts 0).Annotations.runbook_url }}
{{ end }}
TEMPLATE

[ -n "$webhook$mail" ] || echo "Neither ALERT_WEBHOOK_URL nor ALERT_EMAIL_URL is set: alerts reach nobody" >&2
exec alertmanager --config.file="$dir/alertmanager.yml" "$@"
