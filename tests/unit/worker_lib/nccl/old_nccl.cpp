// A libnccl.so.2 that reports version 2.16.2. It has all functions that api.cpp binds; only ncclGetVersion is called.

extern "C" {
__attribute__((visibility("default"))) int ncclGetVersion(int* version) { return *version = 21602, 0; }
#define NEVER_CALLED(name) \
    __attribute__((visibility("default"))) int name() { return 3; }
NEVER_CALLED(ncclGetUniqueId)
NEVER_CALLED(ncclCommInitRankConfig)
NEVER_CALLED(ncclCommGetAsyncError)
NEVER_CALLED(ncclCommAbort)
NEVER_CALLED(ncclCommFinalize)
NEVER_CALLED(ncclCommDestroy)
NEVER_CALLED(ncclAllReduce)
NEVER_CALLED(ncclBroadcast)
NEVER_CALLED(ncclReduce)
NEVER_CALLED(ncclAllGather)
NEVER_CALLED(ncclReduceScatter)
NEVER_CALLED(ncclSend)
NEVER_CALLED(ncclRecv)
NEVER_CALLED(ncclGroupStart)
NEVER_CALLED(ncclGroupEnd)
NEVER_CALLED(ncclGetErrorString)
NEVER_CALLED(ncclGetLastError)
}
