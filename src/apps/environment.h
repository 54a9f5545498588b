// DEEPINFER_* variables of the official framework: those with a counterpart become defaults of the flag, the others get a warning.
// The only place that looks at the environment.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace deepinfer::apps {

using Environment = std::map<std::string, std::string, std::less<>>;

/// All variables of this process whose name starts with DEEPINFER_.
[[nodiscard]] Environment read_environment();

/// Sets defaults of the flags of every subcommand of `app`. Returns one warning per variable that has no effect; each names the flag to
/// use when there is one. A value that the flag refuses is such a warning too.
[[nodiscard]] std::vector<std::string> apply_environment(CLI::App& app, const Environment& environment);

}  // namespace deepinfer::apps
