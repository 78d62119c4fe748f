// In the form of internal/info/auto.go of NVIDIA Container Toolkit
const (
	LegacyRuntimeMode = RuntimeMode("legacy")
	CDIRuntimeMode = RuntimeMode("cdi")
	JitCDIRuntimeMode = RuntimeMode("jit-cdi")
)

func New() RuntimeModeResolver {
	return &modeResolver{
		defaultMode: JitCDIRuntimeMode,
	}
}

func (m *modeResolver) ResolveRuntimeMode() RuntimeMode {
	switch platform() {
	case info.PlatformNVML, info.PlatformWSL:
		return m.defaultMode
	case info.PlatformTegra:
		return CSVRuntimeMode
	}
	return m.defaultMode
}
