// This build has no NCCL.

#include "runtime/transport/transports.h"

namespace graphpipe::runtime {

std::unique_ptr<Transport> open_nccl(const TransportSetup&) { return nullptr; }

}  // namespace graphpipe::runtime
