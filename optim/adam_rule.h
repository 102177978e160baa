// The rule of Adam and AdamW, which other optimizers use too.
#pragma once

#include "rewind/optim/adam.h"
#include "rewind/optim/update_rule.h"

namespace rw {

class AdamRule : public UpdateRule {
 public:
  AdamRule(const AdamOptions& options, bool decoupled);  // ValueError

  std::vector<std::string> state_names() const override;
  void update(const Target& target) const override;

 private:
  AdamOptions options_;
  bool decoupled_;
};

}  // namespace rw
