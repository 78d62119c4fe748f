{{/* Labels of every object: the first is that of kustomize, the others are Helm's. */}}
{{- define "gpugate.labels" -}}
app.kubernetes.io/name: gpugate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gpugate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The cap of all rules in the mode of the values; empty if there is none. */}}
{{- define "gpugate.enforcementAction" -}}
{{- get (dict "warn" "warn" "observe" "dryrun") .Values.mode -}}
{{- end }}

{{/* Whether webhooks deny pods while no replica answers. */}}
{{- define "gpugate.failurePolicy" -}}
{{- eq .Values.mode "enforce" | ternary .Values.webhooks.failurePolicy "Ignore" -}}
{{- end }}

{{/* Image and pull policy of a container. */}}
{{- define "gpugate.container" -}}
image: {{ include "gpugate.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* Security context of a pod. OpenShift assigns user and groups, and denies pods that name others. */}}
{{- define "gpugate.podSecurity" -}}
runAsNonRoot: true
{{- if not .root.Values.openshift }}
runAsUser: 65534
runAsGroup: 65534
{{- if .fsGroup }}
fsGroup: 65534
{{- end }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/*
The objects of a file in ../files, as a JSON list in `items`, with the labels, and with the namespace of the release
instead of `gpugate`. An expression names a service account with its namespace.
*/}}
{{- define "gpugate.objects" -}}
{{- $root := .root -}}
{{- $items := list -}}
{{- $text := $root.Files.Get (printf "files/%s" .file) -}}
{{- $text = $text | replace "serviceaccount:gpugate:" (printf "serviceaccount:%s:" $root.Release.Namespace) -}}
{{- $text = $text | replace "gpugate.gpugate.svc" (printf "gpugate.%s.svc" $root.Release.Namespace) -}}
{{- range splitList "\n---\n" $text -}}
  {{- $object := printf "%s\n" . | fromYaml -}}
  {{- if $object.Error -}}{{ fail (printf "%s: %s" $.file $object.Error) }}{{- end -}}
  {{- $labels := merge (include "gpugate.labels" $root | fromYaml) ($object.metadata.labels | default dict) -}}
  {{- $_ := set $object.metadata "labels" $labels -}}
  {{- range concat (list $object.metadata) ($object.subjects | default list) -}}
    {{- if eq (.namespace | default "") "gpugate" -}}{{- $_ := set . "namespace" $root.Release.Namespace -}}{{- end -}}
  {{- end -}}
  {{- $items = append $items $object -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end }}

{{/* The documents of a file in ../files. */}}
{{- define "gpugate.file" -}}
{{- range (include "gpugate.objects" . | fromJson).items }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
