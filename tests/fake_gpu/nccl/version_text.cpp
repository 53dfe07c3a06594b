// The text that the backend searches in the library for the version of CUDA, for each version that tests give the
// library. It comes first among the library's constants (CMakeLists.txt), because AddressSanitizer reports a search
// that goes beyond the end of another one.

extern "C" {
__attribute__((visibility("default"))) extern const char nccl_version_text[] =
    "NCCL version 2.28.9+cuda13.0\0NCCL version 2.18.3+cuda13.0";
}
