{{- define "dovetail.name" -}}
{{ .Values.nameOverride | default (include "dovetail.view" . | fromYaml).name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "dovetail.selector" -}}
app.kubernetes.io/name: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dovetail.labels" -}}
{{ include "dovetail.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dovetail.reference" -}}
{{- $tag := .image.tag | default .root.Chart.AppVersion -}}
{{ if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ $tag }}{{ end }}
{{- end }}

{{/* Takes root, kind, link: the name of a service's object, as of its process in Compose. */}}
{{- define "dovetail.component" -}}
{{ .kind | replace "_" "-" }}{{ .link.suffix }}
{{- end }}

{{/* Where control asks a stage, whatever a heartbeat says; {service} and {node} are control's to fill in. */}}
{{- define "dovetail.stages" -}}
{{- $name := include "dovetail.name" . -}}
{{- $scheme := include "dovetail.scheme" . | lower -}}
{{- if eq (include "dovetail.view" . | fromYaml).runs "spark" -}}
{{ $scheme }}://{{ $name }}-enrich:8080
{{- else -}}
{{ $scheme }}://{{ $name }}-{service}-{node}.{{ $name }}-{service}:8080
{{- end -}}
{{- end }}

{{- define "dovetail.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
# Not walked through at every start, where it is as it should be.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "dovetail.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* Takes root, kind, link: a service's name among users and groups, as topology.py has it. */}}
{{- define "dovetail.service" -}}
{{ .kind }}{{ if gt (int .link.number) 1 }}.{{ .link.number }}{{ end }}
{{- end }}

{{/* What a process is told; a secret's value is never in a manifest, and reaches it as a file. Takes root,
kind, link. */}}
{{- define "dovetail.environment" -}}
{{- $values := .root.Values -}}
{{- $kafka := $values.kafka -}}
{{- $postgres := $values.postgres -}}
- {name: KAFKA_BOOTSTRAP, value: {{ $kafka.bootstrap | quote }}}
{{- if eq $values.identity.kind "own" }}
{{- $owner := has .kind (list "control" "enrich" "snapshot" "frequency" "backfill") }}
{{- $place := printf "%s%s" (required "postgres.address is needed with identity.kind own" $postgres.address) (empty $postgres.query | ternary "" (printf "?%s" $postgres.query)) }}
{{- if and (hasKey $kafka.settings "KAFKA_SASL_MECHANISM") (ne .kind "snapshot") }}
- {name: KAFKA_SASL_USERNAME, value: {{ printf "dovetail.%s.%s" (include "dovetail.view" .root | fromYaml).name (include "dovetail.service" .) | quote }}}
- {name: KAFKA_SASL_PASSWORD_FILE, value: /run/secrets/dovetail/own/kafka-password}
{{- end }}
- {name: DATABASE_URL, value: {{ printf "postgresql://dovetail_reader@%s" $place | quote }}}
- {name: DATABASE_PASSWORD_FILE, value: /run/secrets/dovetail/own/database-password}
- {name: CONTROL_DATABASE_URL, value: {{ printf "postgresql://dovetail_%s@%s" (ternary "control" "gate" $owner) $place | quote }}}
- {name: CONTROL_DATABASE_PASSWORD_FILE, value: /run/secrets/dovetail/own/control-database-password}
{{- else }}
- {name: DATABASE_URL_FILE, value: /run/secrets/dovetail/postgres/{{ $postgres.key }}}
{{- with $postgres.controlKey }}
- {name: CONTROL_DATABASE_URL_FILE, value: /run/secrets/dovetail/postgres/{{ . }}}
{{- end }}
{{- if $kafka.secret }}
{{- range $kafka.secretKeys }}
- {name: {{ . }}_FILE, value: /run/secrets/dovetail/kafka/{{ . }}}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := merge (dict) $values.environment $kafka.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- if $values.tls.secret }}
- {name: DOVETAIL_TLS_CERTIFICATE, value: /run/secrets/dovetail/tls/tls.crt}
- {name: DOVETAIL_TLS_KEY, value: /run/secrets/dovetail/tls/tls.key}
- {name: DOVETAIL_TLS_AUTHORITY, value: /run/secrets/dovetail/tls/ca.crt}
{{- end }}
{{- end }}

{{/* The secrets of a process by the folder below /run/secrets/dovetail that each is mounted at, as YAML. Takes
root, kind, link. */}}
{{- define "dovetail.secrets" -}}
{{- $values := .root.Values -}}
{{- $found := dict -}}
{{- if eq $values.identity.kind "own" -}}
{{- $prefix := $values.identity.prefix | default (printf "%s-" (include "dovetail.name" .root)) -}}
{{- $_ := set $found "own" (printf "%s%s" $prefix (include "dovetail.component" .)) -}}
{{- else -}}
{{- $_ := set $found "postgres" $values.postgres.secret -}}
{{- with $values.kafka.secret }}{{ $_ := set $found "kafka" . }}{{ end -}}
{{- end -}}
{{- with $values.tls.secret }}{{ $_ := set $found "tls" . }}{{ end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Takes root, kind, link. */}}
{{- define "dovetail.mounts" -}}
- {name: pipeline, mountPath: /etc/dovetail/pipeline.yaml, subPath: pipeline.yaml, readOnly: true}
- {name: cache, mountPath: /var/cache/dovetail}
- {name: state, mountPath: /var/lib/dovetail}
- {name: tmp, mountPath: /tmp}
{{- range $folder, $_ := include "dovetail.secrets" . | fromYaml }}
- {name: secret-{{ $folder }}, mountPath: /run/secrets/dovetail/{{ $folder }}, readOnly: true}
{{- end }}
{{- if .root.Values.kafka.tlsSecret }}
- {name: kafka-tls, mountPath: /etc/dovetail/tls/kafka, readOnly: true}
{{- end }}
{{- if .root.Values.postgres.tlsSecret }}
- {name: postgres-tls, mountPath: /etc/dovetail/tls/postgres, readOnly: true}
{{- end }}
{{- end }}

{{/* All but `cache`, which a node has as a volume of its own. Takes root, kind, link. */}}
{{- define "dovetail.volumes" -}}
{{- $root := .root -}}
- name: pipeline
  configMap: {name: {{ include "dovetail.name" $root }}-pipeline}
- name: state
{{- if eq (include "dovetail.shares" .) "true" }}
  persistentVolumeClaim: {claimName: {{ $root.Values.shared.claim | default (printf "%s-shared" (include "dovetail.name" $root)) }}}
{{- else }}
  emptyDir: {}
{{- end }}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
{{- range $folder, $secret := include "dovetail.secrets" . | fromYaml }}
- {name: secret-{{ $folder }}, secret: {secretName: {{ $secret }}, defaultMode: 0440}}
{{- end }}
{{- with $root.Values.kafka.tlsSecret }}
- {name: kafka-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with $root.Values.postgres.tlsSecret }}
- {name: postgres-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* How a probe or a scrape asks a service: by TLS where it has a certificate. */}}
{{- define "dovetail.scheme" -}}
{{ empty .Values.tls.secret | ternary "HTTP" "HTTPS" }}
{{- end }}

{{/* Whether a process writes or reads snapshots or frequencies, and so has the shared claim: a claim that
cannot be had keeps nobody else from starting. Takes root, kind, link. */}}
{{- define "dovetail.shares" -}}
{{- $snapshot := (include "dovetail.view" .root | fromYaml).snapshot -}}
{{ or (has .kind (list "snapshot" "frequency" "backfill")) (and (eq .kind "enrich") $snapshot) (and (has .kind (list "disk_phase" "node")) .link.snapshot) }}
{{- end }}

{{/* Whether anybody does. */}}
{{- define "dovetail.shared" -}}
{{- $view := include "dovetail.view" . | fromYaml -}}
{{- $scheduled := without (values .Values.spark.schedules | sortAlpha) "" -}}
{{ or $view.snapshot (and (ne .Values.spark.kind "off") (not (empty $scheduled))) }}
{{- end }}

{{- define "dovetail.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
