{{/* An image: .root, .image, .digest in place of the image's. */}}
{{- define "verbs3.image" -}}
{{- $digest := .digest | default .image.digest -}}
{{- if $digest -}}
{{ .image.repository }}@{{ $digest }}
{{- else if and .root.Values.allowTags .image.tag -}}
{{ .image.repository }}:{{ .image.tag }}
{{- else -}}
{{ fail (printf "%s has no digest: set it, or allowTags and a tag for a trial" .image.repository) }}
{{- end -}}
{{- end -}}

{{/* What all pods have. */}}
{{- define "verbs3.pod" -}}
serviceAccountName: {{ .Values.serviceAccount.name }}
# No pod speaks to Kubernetes.
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* Where a pod runs, and what gives way to it: .root, .part (the values of its part). */}}
{{- define "verbs3.scheduling" -}}
{{- with .part.priorityClassName | default (.root.Values.priorityClass.create | ternary .root.Values.priorityClass.name "") }}
priorityClassName: {{ . }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* cluster.name, and what the process takes where nobody says it. */}}
{{- define "verbs3.cluster" -}}
{{ dig "cluster" "name" "verbs3" .Values.settings }}
{{- end -}}

{{/* The user of a pod's processes. Secrets are readable to its group. */}}
{{- define "verbs3.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "verbs3.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* The same of pods that lock memory for NICs: .root, .pool. */}}
{{- define "verbs3.rdmaPodSecurity" -}}
{{- if eq .pool.rdma.memlock "capability" -}}
# Root, with one capability and no other: nobody else's process has one that is only added.
runAsNonRoot: false
runAsUser: 0
runAsGroup: 0
seccompProfile: { type: RuntimeDefault }
{{- else -}}
{{ include "verbs3.podSecurity" .root }}
{{- end -}}
{{- end -}}

{{- define "verbs3.rdmaContainerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
{{- if eq .pool.rdma.memlock "capability" }}
capabilities: { drop: [ALL], add: [IPC_LOCK] }
{{- else }}
capabilities: { drop: [ALL] }
{{- end }}
{{- end -}}

{{/* Secrets as files: .root, .identities. */}}
{{- define "verbs3.secretVolume" -}}
- name: secret
  projected:
    # For the pod's user, by its group.
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .root.Values.secrets.main }}
          items:
            - { key: cluster-secret, path: cluster-secret }
            {{- if .identities }}
            - { key: identities.toml, path: identities.toml }
            {{- end }}
      {{- with .root.Values.secrets.accepted }}
      - secret: { name: {{ . }}, items: [{ key: cluster-secrets, path: cluster-secrets-accepted }] }
      {{- end }}
      {{- with .root.Values.secrets.store }}
      - secret: { name: {{ . }}, items: [{ key: credentials, path: credentials }] }
      {{- end }}
{{- end -}}

{{/* Mounts and volumes of a pod's certificates: .root, .role. The cluster's are in Secrets, a worker's in a folder of its host. */}}
{{- define "verbs3.certificateMounts" -}}
{{- if .root.Values.tls.cluster.enabled }}
- { name: cluster-tls, mountPath: /etc/verbs3-cluster, readOnly: true }
{{- end }}
{{- if and .root.Values.tls.gateway.enabled (eq .role "gateway") }}
- { name: gateway-tls, mountPath: /etc/verbs3-gateway, readOnly: true }
{{- end }}
{{- end -}}

{{- define "verbs3.certificateVolumes" -}}
{{- with .root.Values.tls.cluster }}
{{- if .enabled }}
- name: cluster-tls
  {{- if eq $.role "worker" }}
  # There before the pod is: a folder that the kubelet made would be an empty one.
  hostPath: { path: {{ .workersPath }}, type: Directory }
  {{- else }}
  secret: { secretName: {{ eq $.role "gateway" | ternary .gateways .coordinators }}, defaultMode: 0440 }
  {{- end }}
{{- end }}
{{- end }}
{{- if and .root.Values.tls.gateway.enabled (eq .role "gateway") }}
- name: gateway-tls
  secret: { secretName: {{ .root.Values.tls.gateway.secret }}, defaultMode: 0440 }
{{- end }}
{{- end -}}

{{/* Where gateways take memory that pods of their node lend: at one path for both. */}}
{{- define "verbs3.lendingSocket" -}}
{{- range $pool := include "verbs3.pools" . | fromJsonArray }}{{ if eq $pool.socketsPath $.Values.lending.folder }}{{ fail "lending.folder is nodes.socketsPath: pods would see the workers' sockets" }}{{ end }}{{ end -}}
{{ .Values.lending.folder }}/gateway.sock
{{- end -}}

{{/* How a kubelet asks this gateway and no other: two may be on a node. */}}
{{- define "verbs3.probe" -}}
exec: { command: [/usr/local/bin/verbs3, probe, {{ . }}, --socket, /run/verbs3-probe/probe.sock] }, timeoutSeconds: 5
{{- end -}}

{{/* Where containers of one node meet. */}}
{{- define "verbs3.socketsVolume" -}}
- name: sockets
  hostPath: { path: {{ .socketsPath }}, type: DirectoryOrCreate }
{{- end -}}

{{/* The pools, each with everything that `nodes` says and its own over it, as a JSON list. */}}
{{- define "verbs3.pools" -}}
{{- $pools := list -}}
{{- range (.Values.pools | default (list (dict "name" ""))) -}}
{{- $pool := mergeOverwrite (deepCopy $.Values.nodes) (deepCopy .) -}}
{{- $_ := set $pool "suffix" (empty .name | ternary "" (printf "-%s" .name)) -}}
{{- $_ := set $pool "label" (empty .name | ternary "" (printf ", pool: %s" .name)) -}}
{{- if and $pool.hostNetwork $pool.rdma.networks -}}
{{ fail "rdma.networks is for pods of the pod network: set hostNetwork to false" }}
{{- end -}}
{{- $pools = append $pools $pool -}}
{{- end -}}
{{ $pools | toJson }}
{{- end -}}

{{/* GiB of a worker's pod: capacity, overhead, and 110 bytes for each page that disks may have. */}}
{{- define "verbs3.workerMemory" -}}
{{- $disk := 0 -}}
{{- if .pool.worker.disks -}}
{{- $settings := mergeOverwrite (dict) (deepCopy .root.Values.settings) (deepCopy (.pool.settings | default dict)) -}}
{{- $pages := dig "worker" "disk" "pages_max" 16777216 $settings -}}
{{- $disk = ceil (divf (mulf (float64 $pages) 110.0) 1073741824.0) | int64 -}}
{{- end -}}
{{ add (int64 .pool.worker.memoryGiB) (int64 .pool.worker.overheadGiB) $disk }}Gi
{{- end -}}

{{/* Annotations of a pod: .root, .port, .config, .networks. */}}
{{- define "verbs3.annotations" -}}
{{- if .root.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- with .networks }}
k8s.v1.cni.cncf.io/networks: {{ . | quote }}
{{- end }}
{{- with .config }}
# A changed configuration is another pod.
verbs3/configuration: {{ . | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end -}}
