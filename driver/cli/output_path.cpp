#include "driver/cli/output_path.h"

#include <vector>

#include "driver/cli/usage.h"
#include "support/output_file.h"

namespace graphpipe::driver {

Status check_output(const Options& options, std::span<const std::string> also_read) {
  if (options.output.empty()) return Ok{};
  std::vector<std::string> reads = {options.model.model,  options.model.parameters, options.input,
                                    options.plan.cluster, options.plan.profile,     options.schedule.dag,
                                    options.executed};
  reads.insert(reads.end(), also_read.begin(), also_read.end());
  for (const std::string& read : reads)
    if (is_same_file(options.output, read))
      return usage("-o " + options.output, "this file is read by the same command", "name another file to write");
  return check_output_path(options.output);
}

}  // namespace graphpipe::driver
