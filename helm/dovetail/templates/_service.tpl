{{/*
The pod of a service. Takes root, kind (as in topology.py), link (with number and suffix), cpu, and the
bytes that it may ask for and take.

It ends in this order:
  1. it is taken out of its Service, and preStop lets requests arrive that are already on their way;
  2. SIGTERM: no more requests are taken, those under way are answered, the step under way is finished
     and committed, the consumer closes. As a static member it keeps its slots if it is back in time;
  3. SIGKILL, when the grace period is over: what was not committed is read again by whoever is next.
*/}}
{{- define "dovetail.pod" -}}
{{- $root := .root -}}
{{- $component := include "dovetail.component" . -}}
metadata:
  labels:
    {{- include "dovetail.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
    # What Prometheus' targets are labelled by.
    dovetail/service: {{ .kind }}
    dovetail/pipeline: {{ (include "dovetail.view" $root | fromYaml).name }}
    {{- if .node }}
    dovetail/link: {{ .link.number | quote }}
    {{- end }}
  annotations:
    # Another pipeline is another pod: a service reads its file when it starts.
    dovetail/pipeline-digest: {{ include "dovetail.document" $root | sha256sum | quote }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "dovetail.name" $root }}
  automountServiceAccountToken: false
  # A Service called kafka-broker would be taken for a setting of the Kafka client: KAFKA_BROKER_SERVICE_HOST.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $root.Values.drain.requestsSeconds $root.Values.drain.stepSeconds }}
  securityContext: {{- include "dovetail.podSecurity" $root | nindent 4 }}
  {{- include "dovetail.placement" $root | trim | nindent 2 }}
  {{- if .node }}
  topologySpreadConstraints:
    {{- range $root.Values.nodes.spreadOver }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $root.Values.nodes.spread }}
      labelSelector:
        matchLabels:
          {{- include "dovetail.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $component }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .kind | replace "_" "-" }}
      image: {{ include "dovetail.reference" (dict "root" $root "image" $root.Values.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [{{ .kind }}]
      securityContext: {{- include "dovetail.containerSecurity" $root | nindent 8 }}
      ports:
        - {name: http, containerPort: 8080}
      env:
        {{- include "dovetail.environment" . | nindent 8 }}
        {{- if .node }}
        - name: DOVETAIL_NODE
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
        - {name: DOVETAIL_LINK, value: {{ .link.number | quote }}}
        {{- end }}
        {{- if eq .kind "control" }}
        - {name: DOVETAIL_SPARK_JOBS, value: "off"}
        - {name: DOVETAIL_STAGES, value: {{ include "dovetail.stages" $root | quote }}}
        {{- if $root.Values.access.secret }}
        - {name: DOVETAIL_ADMIN_TOKEN_FILE, value: /run/secrets/dovetail/access/admin-token}
        {{- end }}
        {{- end }}
        - {name: DOVETAIL_REQUESTS, value: {{ $root.Values.access.requests | quote }}}
      # Kernels that the image lacks for this processor are compiled before anything else.
      startupProbe:
        httpGet: {path: /health, port: http, scheme: {{ include "dovetail.scheme" $root }}}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /health, port: http, scheme: {{ include "dovetail.scheme" $root }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /ready, port: http, scheme: {{ include "dovetail.scheme" $root }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      lifecycle:
        preStop: {exec: {command: [sleep, {{ $root.Values.drain.requestsSeconds | quote }}]}}
      resources:
        requests: {cpu: {{ .cpu | quote }}, memory: {{ .request | int64 | quote }}}
        limits: {memory: {{ .limit | int64 | quote }}}
      volumeMounts:
        {{- include "dovetail.mounts" . | nindent 8 }}
        {{- if and (eq .kind "control") $root.Values.access.secret }}
        - {name: access, mountPath: /run/secrets/dovetail/access, readOnly: true}
        {{- end }}
  volumes:
    {{- include "dovetail.volumes" . | nindent 4 }}
    {{- if not .node }}
    - {name: cache, emptyDir: {}}
    {{- end }}
    {{- if and (eq .kind "control") $root.Values.access.secret }}
    - name: access
      secret:
        secretName: {{ $root.Values.access.secret }}
        defaultMode: 0440
        items: [{key: {{ $root.Values.access.key }}, path: admin-token}]
    {{- end }}
{{- end }}

{{/* A service with one process: a Deployment that never has two of them, for the second would fence the
first. Takes what dovetail.pod takes. */}}
{{- define "dovetail.single" -}}
{{- $component := include "dovetail.component" . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "dovetail.name" .root }}-{{ $component }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector:
    matchLabels:
      {{- include "dovetail.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
  template: {{- include "dovetail.pod" . | nindent 4 }}
---
{{ include "dovetail.endpoint" . }}
{{- end }}

{{/* Its Service: for senders, for the console, for Prometheus; of nodes, for their names. Where only some
of its pods answer, `among` says by which further labels. */}}
{{- define "dovetail.endpoint" -}}
{{- $component := include "dovetail.component" . -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "dovetail.name" .root }}-{{ $component }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  {{- if .node }}
  clusterIP: None
  # A node that is not ready has its name all the same.
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "dovetail.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
    {{- with .among }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: http, port: 8080, targetPort: http}
{{- end }}

{{/* A service with one process a node: static members of its group, by their ordinals, each with a volume
that it finds again. Takes what dovetail.pod takes, and nodes. */}}
{{- define "dovetail.nodes" -}}
{{- $component := include "dovetail.component" . -}}
{{- $name := printf "%s-%s" (include "dovetail.name" .root) $component -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  serviceName: {{ $name }}
  {{- if eq .root.Values.autoscaling.kind "off" }}
  replicas: {{ .nodes }}
  {{- end }}
  # Nodes do not wait for one another when they start; an upgrade takes them one by one.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  # What a node that was taken away leaves behind are compiled kernels.
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}
  selector:
    matchLabels:
      {{- include "dovetail.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
  template: {{- include "dovetail.pod" . | nindent 4 }}
  volumeClaimTemplates:
    - metadata: {name: cache}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .root.Values.nodes.volume.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .root.Values.nodes.volume.size }}}}
---
{{ include "dovetail.endpoint" . }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  maxUnavailable: {{ .root.Values.nodes.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "dovetail.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}

{{/* Takes root, kind, link, cpu: what dovetail.pod takes of a phase. */}}
{{- define "dovetail.phase" -}}
{{- $memory := .root.Values.memory -}}
{{- $request := add (include "dovetail.bytes" $memory.base | int64) (int64 .link.bytes) -}}
{{- $limit := add (include "dovetail.bytes" $memory.beside | int64) (mul 2 (int64 .link.bytes)) -}}
{{- include "dovetail.nodes" (merge (dict "node" true "request" $request "limit" $limit) .) -}}
{{- end }}
