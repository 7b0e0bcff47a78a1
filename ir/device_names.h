#pragma once
// How devices are named in sentences and pictures.

#include <cstddef>
#include <string>
#include <vector>

namespace graphpipe::ir {

/// "device 3", "devices 0 to 3", "devices 0, 4, 8 and 5 more". Needs: ascending, not empty.
std::string device_names(const std::vector<size_t>& numbers);

}  // namespace graphpipe::ir
