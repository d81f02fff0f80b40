{{/* What the chart reads from the pipeline's file; defaults are those of dovetail/pipeline/shape.py. */}}

{{- define "dovetail.document" -}}
{{ .Values.pipeline | default (.Files.Get "files/pipeline.yaml") }}
{{- end }}

{{/* A size as people write it, in bytes: 32MiB, 64MB, 134217728. */}}
{{- define "dovetail.bytes" -}}
{{- $text := toString . | trim -}}
{{- if kindIs "float64" . }}{{ $text = int64 . | toString }}{{ end -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := regexReplaceAll "^[0-9.]+ ?" $text "" | lower -}}
{{- $units := dict "" 1 "b" 1 "kib" 1024 "mib" 1048576 "gib" 1073741824 "tib" 1099511627776 "kb" 1000 "mb" 1000000 "gb" 1000000000 "tb" 1000000000000 "ki" 1024 "mi" 1048576 "gi" 1073741824 -}}
{{- if not (hasKey $units $unit) }}{{ fail (printf "%s is not a size; write 128MiB" $text) }}{{ end -}}
{{- mulf (float64 $number) (get $units $unit) | int64 -}}
{{- end }}

{{/*
As YAML: name, runs (split, fused or spark: whose processes there are), nodes, slots, links (number, bytes, snapshot), and what the network has to allow.
A link is a table of the chain; from the second on its number stands behind its services' names.
*/}}
{{- define "dovetail.view" -}}
{{- $file := include "dovetail.document" . | fromYaml -}}
{{- if hasKey $file "Error" }}{{ fail (printf "the pipeline's file is not YAML: %s" $file.Error) }}{{ end -}}
{{- $told := .Values.environment -}}
{{- $engine := $told.DOVETAIL_ENGINE | default $file.engine | default "services" -}}
{{- $layout := $told.DOVETAIL_LAYOUT | default $file.layout | default "split" -}}
{{- $runs := ternary "spark" $layout (eq $engine "spark") -}}
{{- if not (has $runs (list "split" "fused" "spark")) }}{{ fail (printf "there is no layout %s: write split or fused" $layout) }}{{ end -}}
{{- $memory := $told.DOVETAIL_MEMORY | default $file.memory | default "128MiB" -}}
{{- $snapshot := not (empty (dig "master" "snapshot" "" $file)) -}}
{{- $links := list (dict "number" 1 "suffix" "" "bytes" (include "dovetail.bytes" $memory | int64) "snapshot" $snapshot) -}}
{{- range $index, $link := $file.then | default list -}}
{{- $number := add $index 2 -}}
{{- $bytes := include "dovetail.bytes" ($link.memory | default "128MiB") | int64 -}}
{{- $own := not (empty (dig "master" "snapshot" "" $link)) -}}
{{- $links = append $links (dict "number" $number "suffix" (printf "-%d" $number) "bytes" $bytes "snapshot" $own) -}}
{{- $snapshot = or $snapshot $own -}}
{{- end -}}
{{- dict
  "name" (required "the pipeline's file has no name" $file.name)
  "runs" $runs
  "nodes" ($told.DOVETAIL_NODES | default $file.nodes | default 1 | int)
  "slots" ($told.DOVETAIL_SLOTS | default $file.slots | default 8 | int)
  "links" $links
  "snapshot" $snapshot
  "sheds" (and (hasKey $file "overload") (ne (toString $file.overload) "backpressure"))
  "registry" (contains "://" (toString (dig "source" "registry" "" $file)))
  | toYaml -}}
{{- end }}
