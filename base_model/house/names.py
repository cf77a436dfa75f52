"""The words of the house: what its modules are about. Singular nouns take a plain -s."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENTITIES = _words("""
invoice order customer shipment parcel ticket booking member vendor product contract refund payment account
claim voucher coupon review message device sensor printer vehicle driver route station platform garden recipe
meal patient visit lesson course student teacher exam grade book author chapter article comment report alert
job worker task project sprint release build artifact package license permit tenant lease room building floor
meter reading budget ledger journal transfer deposit loan mortgage asset bond share fund broker trade quote
basket cart wallet card badge locker crate pallet depot harbor vessel cargo berth crane convoy flight gate
seat runway camera scene clip track album artist concert venue poster survey answer question poll ballot
campaign donor grant pledge auction bid lot sample probe assay batch reactor valve pump filter tank sluice
orchard harvest barrel cellar
""")

TEXT_FIELDS = _words("""
name title owner email phone region city street country currency category channel language color brand origin
carrier contact manager team office reference source target summary note label slug topic section department
supplier reason
""")

NUMBER_FIELDS = _words("""
amount price quantity weight length height width volume capacity priority score level points stock distance
duration attempts balance discount tax fee limit size rank copies pages minutes hours mileage pressure
temperature
""")

STATUSES = _words("""
draft open paid sent closed approved rejected pending active paused archived shipped returned cancelled
expired locked queued running failed done blocked verified signed planned started delivered settled frozen
published hidden
""")

DESKS = _words("""
billing sales support shipping planning field service night front back audit supply
""")
