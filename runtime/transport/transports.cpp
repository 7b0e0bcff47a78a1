#include "runtime/transport/transports.h"

namespace graphpipe::runtime {

std::span<const TransportEntry> transports() {
  static constexpr TransportEntry kTransports[] = {
      {"shm", "shared-memory rings; all ranks on one host", &open_shm},
      {"gloo", "TCP through LibTorch's Gloo; several hosts", &open_gloo},
      {"nccl", "NVIDIA GPUs", &open_nccl},
  };
  return kTransports;
}

}  // namespace graphpipe::runtime
