#pragma once
// The kernels of a plan's matrix products and convolutions, chosen by measurement where its programs are built.

#include <string>

#include "support/diagnostic.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Writes the folder's kernels.txt (wire/product_table.h), by graphpipe-calibrate of the installed runtime. A file that
/// is of these products stays as it is: programs that are built again compute the same bits. Nothing is measured where
/// no product is worth it, no such program is installed, or GRAPHPIPE_CALIBRATION says what the machine does; the
/// programs then go by their rule. Errors: kMalformedFile where the folder's products are of another version,
/// kEnvironment where it cannot be measured or written, kInterrupted.
Status choose_kernels(const std::string& folder);

}  // namespace graphpipe::driver
