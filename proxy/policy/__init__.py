"""The contract of a policy: all that an author has to read."""

from proxy.policy.base import SETTINGS as SETTINGS
from proxy.policy.base import Decision as Decision
from proxy.policy.base import Keep as Keep
from proxy.policy.base import Need as Need
from proxy.policy.base import Policy as Policy
from proxy.policy.base import Reject as Reject
from proxy.policy.base import Rewrite as Rewrite
from proxy.policy.base import Stage as Stage
from proxy.policy.base import When as When
from proxy.policy.guard import Guard as Guard
from proxy.policy.interfaces import NOTES_READ as NOTES_READ
from proxy.policy.interfaces import NOTES_WRITTEN as NOTES_WRITTEN
from proxy.policy.interfaces import ORIGINALS_READ as ORIGINALS_READ
from proxy.policy.interfaces import ORIGINALS_WRITTEN as ORIGINALS_WRITTEN
from proxy.policy.interfaces import SHORTER_HISTORY as SHORTER_HISTORY
from proxy.policy.interfaces import AnswerObserver as AnswerObserver
from proxy.policy.interfaces import BringsTools as BringsTools
from proxy.policy.interfaces import Count as Count
from proxy.policy.interfaces import CutsHistory as CutsHistory
from proxy.policy.interfaces import Fact as Fact
from proxy.policy.interfaces import InternalTool as InternalTool
from proxy.policy.interfaces import MarksCache as MarksCache
from proxy.policy.interfaces import ObservesAnswers as ObservesAnswers
from proxy.policy.interfaces import ReadsFiles as ReadsFiles
from proxy.policy.interfaces import RefusesContent as RefusesContent
from proxy.policy.interfaces import ToolContext as ToolContext
