#include "runtime/transport/transports.h"

namespace graphpipe::runtime {

std::span<const TransportEntry> transports() {
  static constexpr TransportEntry kTransports[] = {
      {"shm", "shared-memory rings; all ranks on one host", &open_shm},
      {"tcp", "TCP connections; several hosts", &open_tcp},
      {"nccl", "NVIDIA GPUs", &open_nccl},
  };
  return kTransports;
}

}  // namespace graphpipe::runtime
