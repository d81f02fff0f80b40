{{/* A heap as Java writes it, in bytes: 1g, 512m. */}}
{{- define "dovetail.heap" -}}
{{ include "dovetail.bytes" (regexReplaceAll "^([0-9]+)([kmgt])$" (toString . | lower) "${1}${2}ib") }}
{{- end }}

{{/* A job as the service that it is to the broker and the database. Takes root, job. */}}
{{- define "dovetail.ofJob" -}}
{{ dict "kind" .job "link" (dict "number" 1 "suffix" "") | toJson }}
{{- end }}

{{- define "dovetail.sparkEnvironment" -}}
{{ include "dovetail.environment" (merge (dict "root" .root) (include "dovetail.ofJob" . | fromJson)) }}
- {name: SPARK_DRIVER_MEMORY, value: {{ .root.Values.spark.driverMemory | quote }}}
- {name: SPARK_EXECUTOR_MEMORY, value: {{ .root.Values.spark.executorMemory | quote }}}
{{- if eq .job "enrich" }}
- {name: DOVETAIL_PORT, value: "8080"}
{{- end }}
{{- end }}

{{/* A job with Spark in its own pod. Takes root, job, labels. */}}
{{- define "dovetail.sparkPod" -}}
{{- $spark := .root.Values.spark -}}
{{- $enrich := eq .job "enrich" -}}
{{- $memory := add (include "dovetail.heap" $spark.driverMemory | int64) (include "dovetail.bytes" $spark.overhead | int64) -}}
metadata:
  labels: {{- toYaml .labels | nindent 4 }}
  annotations:
    dovetail/pipeline-digest: {{ include "dovetail.document" .root | sha256sum | quote }}
spec:
  restartPolicy: {{ ternary "Always" "OnFailure" $enrich }}
  serviceAccountName: {{ include "dovetail.name" .root }}
  automountServiceAccountToken: false
  # A Service called kafka-broker would be taken for a setting of the Kafka client: KAFKA_BROKER_SERVICE_HOST.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .root.Values.drain.requestsSeconds .root.Values.drain.stepSeconds }}
  securityContext: {{- include "dovetail.podSecurity" .root | nindent 4 }}
  {{- include "dovetail.placement" .root | trim | nindent 2 }}
  containers:
    - name: {{ .job }}
      image: {{ include "dovetail.reference" (dict "root" .root "image" $spark.image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [spark, {{ .job }}]
      securityContext: {{- include "dovetail.containerSecurity" .root | nindent 8 }}
      {{- if $enrich }}
      ports:
        - {name: http, containerPort: 8080}
      startupProbe: {httpGet: {path: /health, port: http, scheme: {{ include "dovetail.scheme" .root }}}, periodSeconds: 10, failureThreshold: 60}
      livenessProbe: {httpGet: {path: /health, port: http, scheme: {{ include "dovetail.scheme" .root }}}, periodSeconds: 10, timeoutSeconds: 5}
      readinessProbe: {httpGet: {path: /ready, port: http, scheme: {{ include "dovetail.scheme" .root }}}, periodSeconds: 10, timeoutSeconds: 5}
      {{- end }}
      env:
        - {name: SPARK_MASTER, value: "local[{{ $spark.executors }}]"}
        {{- include "dovetail.sparkEnvironment" . | nindent 8 }}
      resources:
        requests: {cpu: {{ $spark.cpu | quote }}, memory: {{ $memory | quote }}}
        limits: {memory: {{ $memory | quote }}}
      volumeMounts: {{- include "dovetail.mounts" (merge (dict "root" .root) (include "dovetail.ofJob" . | fromJson)) | nindent 8 }}
  volumes:
    {{- include "dovetail.volumes" (merge (dict "root" .root) (include "dovetail.ofJob" . | fromJson)) | nindent 4 }}
    - {name: cache, emptyDir: {}}
{{- end }}

{{/* A job whose driver and executors are pods. Takes root, job, labels, restart. */}}
{{- define "dovetail.sparkApplication" -}}
{{- $root := .root -}}
{{- $spark := $root.Values.spark -}}
{{- $overhead := printf "%dm" (div (include "dovetail.bytes" $spark.overhead | int64) 1048576) -}}
type: Python
pythonVersion: "3"
mode: cluster
image: {{ include "dovetail.reference" (dict "root" $root "image" $spark.image) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- range . }}
  - {{ .name }}
{{- end }}
{{- end }}
mainApplicationFile: local:///opt/dovetail/lib/python3.11/site-packages/services/spark/__main__.py
arguments: [{{ .job }}]
sparkVersion: {{ $spark.sparkVersion | quote }}
sparkConf:
  # The connectors' jars are in the image.
  spark.driver.extraClassPath: /opt/dovetail/jars/*
  spark.executor.extraClassPath: /opt/dovetail/jars/*
  spark.kubernetes.driver.annotation.dovetail/pipeline-digest: {{ include "dovetail.document" $root | sha256sum | quote }}
restartPolicy: {{- toYaml .restart | nindent 2 }}
volumes:
  {{- include "dovetail.volumes" (merge (dict "root" .root) (include "dovetail.ofJob" . | fromJson)) | nindent 2 }}
  - {name: cache, emptyDir: {}}
driver:
  {{- include "dovetail.sparkMember" . | nindent 2 }}
  memory: {{ $spark.driverMemory | quote }}
  memoryOverhead: {{ $overhead | quote }}
  serviceAccount: {{ $spark.serviceAccount | default (printf "%s-spark" (include "dovetail.name" $root)) }}
  {{- if eq .job "enrich" }}
  ports: [{name: http, protocol: TCP, containerPort: 8080}]
  {{- end }}
executor:
  {{- include "dovetail.sparkMember" . | nindent 2 }}
  instances: {{ $spark.executors }}
  memory: {{ $spark.executorMemory | quote }}
  memoryOverhead: {{ $overhead | quote }}
{{- end }}

{{/* What a driver and an executor have alike. */}}
{{- define "dovetail.sparkMember" -}}
labels: {{- toYaml .labels | nindent 2 }}
cores: 1
coreRequest: {{ .root.Values.spark.cpu | quote }}
podSecurityContext: {{- include "dovetail.podSecurity" .root | nindent 2 }}
securityContext: {{- include "dovetail.containerSecurity" .root | nindent 2 }}
env:
  {{- include "dovetail.sparkEnvironment" . | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumeMounts: {{- include "dovetail.mounts" (merge (dict "root" .root) (include "dovetail.ofJob" . | fromJson)) | nindent 2 }}
{{- end }}
