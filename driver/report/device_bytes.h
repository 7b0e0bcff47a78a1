#pragma once
// How full devices are, as one line, however many there are.

#include <string>
#include <vector>

#include "support/units.h"

namespace graphpipe::driver {

struct DeviceBytes {
  size_t device = 0;
  Bytes bytes;
};

/// "3.2 MiB on device 0, 1.1 MiB on devices 1 to 3": the fullest first, together those whose figures read the same, and
/// of many different ones the first eight, with how many devices have less.
std::string device_bytes_text(std::vector<DeviceBytes> devices);

}  // namespace graphpipe::driver
