"""Silver: records that fit a contract become typed rows; the others go to quarantine."""

from headwater.pipeline import contracts

contracts.define()
# Tables may have properties: contracts.define(quarantine={"headwater.retention": "90d"})
