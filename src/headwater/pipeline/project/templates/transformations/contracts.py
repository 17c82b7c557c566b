"""Silver: what fits a contract in contracts/ becomes typed rows; the rest goes to quarantine."""

from headwater.pipeline import contracts

contracts.define()
# Tables may have properties: contracts.define(quarantine={"headwater.retention": "90d"})
