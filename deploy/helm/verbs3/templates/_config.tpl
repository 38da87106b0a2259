{{/* A value of TOML. Numbers of YAML come as floats: whole ones are integers again. */}}
{{- define "verbs3.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ $key }} = {{ include "verbs3.toml.value" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $one := . }}{{ if $index }}, {{ end }}{{ include "verbs3.toml.value" $one }}{{ end }}]
{{- else if kindIs "string" . -}}
{{ . | mustToRawJson }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "verbs3.toml.table" -}}
{{- range $key := keys . | sortAlpha }}
{{ $key }} = {{ include "verbs3.toml.value" (get $ $key) }}
{{- end }}
{{- end -}}

{{/* verbs3.toml of a pool: what the chart knows, and the pool's settings over it. */}}
{{- define "verbs3.toml" -}}
{{- $root := .root -}}
{{- $pool := .pool -}}
{{- $made := dict
      "cluster" (dict
        "secret_file" "/etc/verbs3-secret/cluster-secret"
        "coordinators" (include "verbs3.coordinators" $root | fromJsonArray))
      "gateway" (dict
        "listen" "0.0.0.0:9000"
        "admin_listen" "0.0.0.0:9001"
        "identities" "/etc/verbs3-secret/identities.toml")
      "worker" (dict
        "admin_listen" "0.0.0.0:9401"
        "memory" (dict "capacity" (printf "%dGiB" (int64 $pool.worker.memoryGiB))))
      "coordinator" (dict
        "admin_listen" "0.0.0.0:9501"
        "store" (dict "kind" "etcd" "endpoints" (include "verbs3.etcd.endpoints" $root | fromJsonArray)))
      "verbs" (dict "mode" $pool.rdma.mode) -}}
{{- with $root.Values.secrets.accepted }}{{ $_ := set $made.cluster "secret_accepted_file" "/etc/verbs3-secret/cluster-secrets-accepted" }}{{ end -}}
{{- with $pool.zone }}{{ $_ := set $made.worker "zone" . }}{{ end -}}
{{- with $pool.rdma.rails }}{{ $_ := set $made.verbs "rails" . }}{{ end -}}
{{- with $pool.rdma.railsExcept }}{{ $_ := set $made.verbs "rails_except" . }}{{ end -}}
{{- if $pool.worker.disks -}}
{{- $folders := list -}}
{{- range $index, $disk := $pool.worker.disks -}}
{{- $folders = append $folders (dict "path" (printf "/var/lib/verbs3/disk-%d/cache" $index) "capacity" $disk.capacity) -}}
{{- end -}}
{{- $_ := set $made.worker "disk" (dict "folders" $folders) -}}
{{- end -}}
{{- if $pool.hostNetwork -}}
{{- $_ := set $made.gateway "handover_socket" (printf "%s/%s/handover.sock" $pool.gateway.handoverPath $root.Release.Namespace) -}}
{{- $_ := set $made.gateway "probe_socket" "/run/verbs3-probe/probe.sock" -}}
{{- end -}}
{{- if $root.Values.lending.enabled -}}
{{- $_ := set $made.gateway "lending" (dict "socket" (include "verbs3.lendingSocket" $root) "access" "everyone") -}}
{{- end -}}
{{- if $root.Values.tls.gateway.enabled -}}
{{- $_ := set $made.gateway "tls" (dict "certificate" "/etc/verbs3-gateway/tls.crt" "key" "/etc/verbs3-gateway/tls.key") -}}
{{- end -}}
{{- if $root.Values.tls.cluster.enabled -}}
{{- $_ := set $made.cluster "tls" (dict
      "certificate" "/etc/verbs3-cluster/tls.crt"
      "key" "/etc/verbs3-cluster/tls.key"
      "ca_file" "/etc/verbs3-cluster/ca.crt"
      "mode" $root.Values.tls.cluster.mode) -}}
{{- end -}}
{{- if $root.Values.console.enabled -}}
{{- $_ := set $made.coordinator "console" (dict "users" "/etc/verbs3-console/console-users.toml") -}}
{{- end -}}
{{- if $root.Values.etcd.tls.enabled -}}
{{- $_ := mergeOverwrite $made.coordinator.store (dict
      "ca_file" "/etc/verbs3-etcd/ca.crt"
      "certificate" "/etc/verbs3-etcd/tls.crt"
      "key" "/etc/verbs3-etcd/tls.key") -}}
{{- end -}}
{{- $all := mergeOverwrite $made (deepCopy $root.Values.settings) (deepCopy ($pool.settings | default dict)) -}}
{{- range $section := keys $all | sortAlpha }}
{{- $value := get $all $section }}
{{- if kindIs "slice" $value }}
{{- range $value }}

[[{{ $section }}]]
{{- include "verbs3.toml.table" . }}
{{- end }}
{{- else }}

[{{ $section }}]
{{- include "verbs3.toml.table" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of the coordinators' URLs. Mode accept asks over plain connections, while others have no certificates yet. */}}
{{- define "verbs3.coordinators.scheme" -}}
{{ and .Values.tls.cluster.enabled (ne .Values.tls.cluster.mode "accept") | ternary "https" "http" }}
{{- end -}}

{{- define "verbs3.coordinators" -}}
{{- $urls := list -}}
{{- range $index := until (int .Values.coordinators.replicas) -}}
{{- $urls = append $urls (printf "%s://verbs3-coordinator-%d.verbs3-coordinator:9500" (include "verbs3.coordinators.scheme" $) $index) -}}
{{- end -}}
{{ $urls | toJson }}
{{- end -}}

{{- define "verbs3.etcd.scheme" -}}
{{ .Values.etcd.tls.enabled | ternary "https" "http" }}
{{- end -}}

{{- define "verbs3.etcd.endpoints" -}}
{{- if .Values.etcd.own -}}
{{- $urls := list -}}
{{- range $index := until 3 -}}
{{- $urls = append $urls (printf "%s://verbs3-etcd-%d.verbs3-etcd:2379" (include "verbs3.etcd.scheme" $) $index) -}}
{{- end -}}
{{ $urls | toJson }}
{{- else -}}
{{ required "etcd.endpoints: name your etcd's, or set etcd.own" (.Values.etcd.endpoints | default nil) | toJson }}
{{- end -}}
{{- end -}}
