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
{{- if eq (include "dovetail.view" . | fromYaml).engine "spark" -}}
http://{{ $name }}-enrich:8080
{{- else -}}
http://{{ $name }}-{service}-{node}.{{ $name }}-{service}:8080
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

{{/* What every process is told; a secret's value is never in a manifest. */}}
{{- define "dovetail.environment" -}}
- {name: KAFKA_BOOTSTRAP, value: {{ .Values.kafka.bootstrap | quote }}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.postgres.secret }}, key: {{ .Values.postgres.key }}}}
{{- range $name, $value := merge (dict) .Values.environment .Values.kafka.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "dovetail.environmentFrom" -}}
{{- with .Values.kafka.secret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "dovetail.mounts" -}}
- {name: pipeline, mountPath: /etc/dovetail/pipeline.yaml, subPath: pipeline.yaml, readOnly: true}
- {name: cache, mountPath: /var/cache/dovetail}
- {name: state, mountPath: /var/lib/dovetail}
- {name: tmp, mountPath: /tmp}
{{- if .Values.kafka.tlsSecret }}
- {name: kafka-tls, mountPath: /etc/dovetail/tls/kafka, readOnly: true}
{{- end }}
{{- if .Values.postgres.tlsSecret }}
- {name: postgres-tls, mountPath: /etc/dovetail/tls/postgres, readOnly: true}
{{- end }}
{{- end }}

{{/* All but `cache`, which a node has as a volume of its own. */}}
{{- define "dovetail.volumes" -}}
- name: pipeline
  configMap: {name: {{ include "dovetail.name" . }}-pipeline}
- name: state
{{- if eq (include "dovetail.shares" .) "true" }}
  persistentVolumeClaim: {claimName: {{ .Values.shared.claim | default (printf "%s-shared" (include "dovetail.name" .)) }}}
{{- else }}
  emptyDir: {}
{{- end }}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
{{- with .Values.kafka.tlsSecret }}
- {name: kafka-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.postgres.tlsSecret }}
- {name: postgres-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* Whether jobs and nodes have a volume in common. */}}
{{- define "dovetail.shares" -}}
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
